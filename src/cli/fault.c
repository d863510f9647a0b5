/* fault.c - see fault.h; the agent writes it in agent/blackbox.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/fault.h"
#include "cli/names.h"

enum { NAME_WIDTH = 100, SHOWN_BYTES = 16 /* of a struct that is passed by value */ };

static const char *name_of(uint32_t fault)
{
	static const struct {
		uint32_t code;
		const char *name;
	} names[] = { { 214, "uncorrectable ECC error" }, { 226, "contained error" },
		{ 700, "illegal address" }, { 702, "launch timeout" }, { 710, "assertion" },
		{ 714, "hardware stack error" }, { 715, "illegal instruction" },
		{ 716, "misaligned address" }, { 717, "invalid address space" },
		{ 718, "invalid program counter" }, { 719, "launch failure" } };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].code == fault)
			return names[i].name;
	return "unknown fault";
}

/* -- launches ------------------------------------------------------------------------------- */

/* Those of a box that may have been under way at the fault, by number: the last ones. */
struct launches {
	uint32_t n;
	struct session_launch list[SESSION_LAST_LAUNCHES];
};

/* Copies one if it was not overwritten meanwhile and has not ended. */
static bool take_launch(const struct session_blackbox *b, const struct session_launch *from, struct session_launch *to)
{
	*to = *from;
	return __atomic_load_n(&from->number, __ATOMIC_ACQUIRE) == to->number && to->number > b->done && to->number <= b->launches_then &&
	       !to->ended;
}

static void take_launches(const struct session_blackbox *b, struct launches *all)
{
	struct session_launch l;
	all->n = 0;
	for (uint32_t i = 0; i < SESSION_BOX_LANES * SESSION_LAST_LAUNCHES; i++) {
		if (!take_launch(b, &b->last[i], &l))
			continue;
		uint32_t at = all->n;
		while (at && all->list[at - 1].number > l.number)
			at--;
		bool full = all->n == SESSION_LAST_LAUNCHES;
		if (full && !at)
			continue; /* older than all of them */
		if (full) { /* the oldest goes */
			memmove(&all->list[0], &all->list[1], (--at) * sizeof(l));
		} else {
			memmove(&all->list[at + 1], &all->list[at], (all->n - at) * sizeof(l));
			all->n++;
		}
		all->list[at] = l;
	}
}

static const struct snap_kernel *kernel_of(const struct snapshot *snap, uint32_t row)
{
	for (uint32_t i = 0; i < snap->n_kernels; i++)
		if (snap->kernels[i].id == row)
			return &snap->kernels[i];
	return NULL;
}

static const char *kernel_name(const struct snapshot *snap, const struct snap_kernel *k)
{
	return k ? name_short(snap->arena, k->name, NAME_WIDTH) : "a kernel without a row";
}

/* The name of the program of a link, up to 64 bytes; false: the rows are another's by now. */
static bool probe_name(const struct session_file *f, uint32_t link, char name[65])
{
	uint32_t prog = f->links[link].prog;
	if (prog >= SESSION_MAX_PROGS || !f->progs[prog].used)
		return false;
	snprintf(name, 65, "%.64s", f->progs[prog].name);
	return *name;
}

/* -- parameters ------------------------------------------------------------------------------ */

/* One of session_kernel.params, and where its value is. */
struct param {
	char kind; /* u, s, b, f */
	uint32_t one, n, at; /* bytes of the type, how many (0: no array) */
};

/* Reads the next type of "u64 b8[24]@8 f32" and places it. */
static bool next_param(const char **text, uint32_t *end, struct param *p)
{
	unsigned int bits, n = 0, align = 0;
	int used = 0;
	char kind;
	if (sscanf(*text, " %c%u%n", &kind, &bits, &used) < 2 || !strchr("usbf", kind) || bits < 8 || bits > 128)
		return false;
	*text += used;
	if (sscanf(*text, "[%u]%n", &n, &used) == 1)
		*text += used;
	if (sscanf(*text, "@%u%n", &align, &used) == 1)
		*text += used;
	*p = (struct param){ .kind = kind, .one = bits / 8, .n = n };
	if (!align)
		align = p->one;
	if (n > 1 << 16 || align > 1 << 16 || *end > 1 << 16)
		return false;
	p->at = (*end + align - 1) / align * align;
	*end = p->at + p->one * (n ? n : 1);
	return true;
}

static double as_double(const struct param *p, uint64_t word)
{
	double d;
	float f;
	if (p->one == 8) {
		memcpy(&d, &word, sizeof(d));
		return d;
	}
	memcpy(&f, &word, sizeof(f));
	return (double)f;
}

/* Numbers of the upper half are addresses, sizes that are no sizes, or negative: easier to see in hexadecimal. */
static void value_text(const struct param *p, const uint8_t *bytes, struct buf *out)
{
	uint64_t word = 0;
	uint32_t n = p->one * (p->n ? p->n : 1), shown = n < SHOWN_BYTES ? n : SHOWN_BYTES;
	if (!p->n && p->one <= 8) {
		memcpy(&word, bytes, p->one);
		if (p->kind == 'f' && p->one >= 4)
			buf_printf(out, "%g", as_double(p, word));
		else if (p->one == 8 ? word >> 32 : word >> (p->one * 8 - 1))
			buf_printf(out, "0x%" PRIx64, word);
		else
			buf_printf(out, "%" PRIu64, word);
		return;
	}
	buf_puts(out, "{");
	for (uint32_t i = 0; i < shown; i++)
		buf_printf(out, "%s%02x", i ? " " : "", bytes[i]);
	buf_puts(out, shown < n ? " ..}" : "}");
}

/* Calls fn with the text of each value that the box has; the number of them, -1: parameters are not known. *more: there are others. */
static int each_value(const struct session *s, const struct snap_kernel *k, const struct session_launch *l,
	void (*fn)(const char *value, int i, void *arg), void *arg, bool *more)
{
	const char *text = k ? k->params : "";
	uint32_t end = 0, kept = l->param_bytes < SESSION_PARAM_BYTES ? l->param_bytes : SESSION_PARAM_BYTES;
	struct param p;
	int n = 0;
	*more = false;
	if (!*text || l->graph_kernels)
		return -1;
	if (!strcmp(text, SESSION_NO_PARAMS))
		return 0;
	for (; *text; n++) {
		if (!next_param(&text, &end, &p))
			return n ? n : -1;
		*more = end > kept;
		if (*more)
			return n ? n : -1;
		struct buf value = { 0 };
		value_text(&p, l->params + p.at, &value);
		fn(value.failed ? "?" : value.data, n, arg);
		buf_free(&value);
	}
	return n;
}

static void add_value(const char *value, int i, void *arg)
{
	buf_printf(arg, "%s%s", i ? ", " : "", value);
}

/* -- text ------------------------------------------------------------------------------------- */

static void launch_text(struct session *s, const struct snapshot *snap, const struct session_launch *l, struct buf *text)
{
	const struct session_file *f = session_data(s);
	const struct snap_kernel *k = kernel_of(snap, l->kernel);
	struct buf values = { 0 };
	char name[65];
	bool more, any = false;
	buf_printf(text, "    launch %" PRIu64 ", not seen to end: ", l->number);
	if (l->graph_kernels == UINT32_MAX)
		buf_puts(text, "a graph whose kernels are not known");
	else if (l->graph_kernels)
		buf_printf(text, "a graph of %u kernel%s, first %s", l->graph_kernels, l->graph_kernels == 1 ? "" : "s", kernel_name(snap, k));
	else
		buf_printf(text, "%s, %u x %u x %u blocks of %u x %u x %u threads", kernel_name(snap, k), l->grid[0], l->grid[1], l->grid[2],
			l->block[0], l->block[1], l->block[2]);
	if (l->shared_bytes && !l->graph_kernels)
		buf_printf(text, ", %u bytes of dynamic shared memory", l->shared_bytes);
	if (l->stream != UINT32_MAX)
		buf_printf(text, ", stream %u", l->stream);
	if (l->thread)
		buf_printf(text, " of thread %u", l->thread);
	buf_puts(text, l->links ? ", probed" : "");
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++)
		if (l->links >> i & 1 && probe_name(f, i, name)) {
			buf_printf(text, "%s%s", any ? ", " : " by ", name);
			any = true;
		}
	buf_puts(text, "\n");
	int n = each_value(s, k, l, add_value, &values, &more);
	if (n > 0 && !values.failed)
		buf_printf(text, "      arguments: %s%s\n", values.data, more ? ", .." : "");
	buf_free(&values);
}

static void maps_text(const struct session_blackbox *b, struct buf *text)
{
	if (!b->maps_behind)
		return;
	buf_printf(text, "    maps lack all or part of %" PRIu64 " probed launch%s: ", b->maps_behind, b->maps_behind == 1 ? "" : "es");
	if (b->maps_ns)
		buf_printf(text, "they were copied %.1f ms before that", b->fault_ns > b->maps_ns ? (double)(b->fault_ns - b->maps_ns) / 1e6 : 0);
	else
		buf_puts(text, "they had not been copied yet");
	buf_puts(text, "; those in host memory (EGPU_F_HOST) are complete\n");
}

void fault_text(struct session *s, const struct snapshot *snap, struct buf *text)
{
	const struct session_file *f = session_data(s);
	struct launches last;
	for (int i = 0; i < SESSION_MAX_AGENTS; i++) {
		const struct session_blackbox *b = &f->boxes[i];
		if (!f->agents[i].has_box || !b->fault)
			continue;
		buf_printf(text, "  device fault in process %u: %s (error %u), seen by %.40s\n",
			f->agents[i].pid, name_of(b->fault), b->fault, b->call);
		take_launches(b, &last);
		for (uint32_t k = 0; k < last.n; k++)
			launch_text(s, snap, &last.list[k], text);
		maps_text(b, text);
	}
}

/* -- JSON --------------------------------------------------------------------------------------- */

static void json_value(const char *value, int i, void *arg)
{
	json_string(arg, value);
}

static void json_launch(struct session *s, const struct snapshot *snap, const struct session_launch *l, struct json *j)
{
	const struct session_file *f = session_data(s);
	const struct snap_kernel *k = kernel_of(snap, l->kernel);
	char name[65];
	bool more;
	json_object(j);
	json_put_u64(j, "launch", l->number);
	json_put_string(j, "kernel", kernel_name(snap, k));
	json_key(j, "graph_kernels");
	l->graph_kernels && l->graph_kernels != UINT32_MAX ? json_u64(j, l->graph_kernels) : json_null(j);
	json_put_bool(j, "graph", l->graph_kernels);
	json_put_three(j, "grid", l->grid);
	json_put_three(j, "block", l->block);
	json_put_u64(j, "shared_bytes", l->shared_bytes);
	json_key(j, "stream");
	l->stream == UINT32_MAX ? json_null(j) : json_u64(j, l->stream);
	json_key(j, "thread");
	l->thread ? json_u64(j, l->thread) : json_null(j);
	json_put_bool(j, "probed", l->links);
	json_key(j, "probes");
	json_array(j);
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++)
		if (l->links >> i & 1 && probe_name(f, i, name))
			json_string(j, name);
	json_array_end(j);
	json_key(j, "types");
	k && *k->params && !l->graph_kernels ? json_string(j, k->params) : json_null(j);
	json_key(j, "arguments");
	json_array(j);
	each_value(s, k, l, json_value, j, &more);
	json_array_end(j);
	json_object_end(j);
}

void fault_json(struct session *s, const struct snapshot *snap, struct json *j)
{
	const struct session_file *f = session_data(s);
	struct launches last;
	json_array(j);
	for (int i = 0; i < SESSION_MAX_AGENTS; i++) {
		const struct session_blackbox *b = &f->boxes[i];
		if (!f->agents[i].has_box || !b->fault)
			continue;
		char call[sizeof(b->call) + 1];
		snprintf(call, sizeof(call), "%.*s", (int)sizeof(b->call), b->call);
		json_object(j);
		json_put_u64(j, "pid", f->agents[i].pid);
		json_put_u64(j, "error", b->fault);
		json_put_string(j, "name", name_of(b->fault));
		json_put_string(j, "seen_by", call);
		json_put_u64(j, "maps_lack_launches", b->maps_behind);
		json_key(j, "maps_older_ns");
		b->maps_ns && b->fault_ns >= b->maps_ns ? json_u64(j, b->fault_ns - b->maps_ns) : json_null(j);
		json_key(j, "launches");
		json_array(j);
		take_launches(b, &last);
		for (uint32_t k = 0; k < last.n; k++)
			json_launch(s, snap, &last.list[k], j);
		json_array_end(j);
		json_object_end(j);
	}
	json_array_end(j);
}
