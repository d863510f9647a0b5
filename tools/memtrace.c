/* memtrace.c - the report of memtrace: which access of which kernel moves more memory than it uses.
 *
 *	KERNEL   SOURCE         OPCODE         ..  SECTORS/REQ  IDEAL/REQ  WASTED BYTES
 *	strided  strided.cu:15  st.global.f32  ..        32.00       4.00       917,504
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <linux/types.h>

#include "cli/grid.h"
#include "cli/names.h"
#include "egpu/probe.bpf.h"
#include "map/map.h"
#include "memtrace.h"
#include "tool.h"

enum { SECTOR = 32, TABLE_ROWS = 40, NAME_WIDTH = 40 };

struct row {
	const struct snap_site *site;
	const struct snap_kernel *kernel;
	struct memtrace_site n;
	uint64_t bytes, wasted_bytes;
};

struct trace {
	const struct snapshot *snap;
	struct row *rows; /* by wasted bytes, most first */
	size_t n_rows, n_executed, n_skipped, n_beyond;
	uint64_t not_recorded;
	uint64_t bytes, moved_bytes, wasted_bytes; /* global and local space */
};

int tool_map_id(struct session *s, const char *name)
{
	const struct session_file *f = session_data(s);
	for (int i = 0; i < EBPF_MAX_MAPS; i++)
		if (f->maps[i].used && !f->maps[i].internal &&
			(!session_client_number(s) || f->maps[i].owner == session_client_number(s)) &&
			!strncmp(f->maps[i].name, name, sizeof(f->maps[i].name)))
			return i;
	return -1;
}

static int open_map(struct session *s, const char *name, struct map **out, struct diag *d)
{
	int id = tool_map_id(s, name);
	if (id < 0)
		return diag_set(d, ENOENT, "memtrace: its map %s is not in the session", name);
	return map_open(s, (uint32_t)id, out, d);
}

static bool is_memory(enum ebpf_point point)
{
	return point == EBPF_POINT_LOAD || point == EBPF_POINT_STORE || point == EBPF_POINT_ATOMIC;
}

static int by_waste(const void *pa, const void *pb)
{
	const struct row *a = pa, *b = pb;
	if (a->wasted_bytes != b->wasted_bytes)
		return a->wasted_bytes < b->wasted_bytes ? 1 : -1;
	if (a->n.sectors != b->n.sectors)
		return a->n.sectors < b->n.sectors ? 1 : -1;
	return a->site->id < b->site->id ? -1 : a->site->id > b->site->id;
}

static void read_row(struct trace *t, struct map *map, const struct snap_site *site)
{
	const struct snap_kernel *k = &t->snap->kernels[site->kernel];
	if (!is_memory(site->point) || k->state == SESSION_KERNEL_REFUSED)
		return;
	if (*site->skipped) {
		t->n_skipped++;
		return;
	}
	struct row *r = &t->rows[t->n_rows];
	*r = (struct row){ .site = site, .kernel = k };
	if (site->id >= MEMTRACE_SITES)
		t->n_beyond++;
	else
		map_lookup_sum(map, &site->id, &r->n);
	r->bytes = r->n.executions * site->bytes;
	/* A torn copy of a running kernel can show sectors before their ideal. */
	if (r->n.sectors > r->n.ideal_sectors)
		r->wasted_bytes = SECTOR * (r->n.sectors - r->n.ideal_sectors);
	if (r->n.sectors)
		t->bytes += r->bytes;
	t->moved_bytes += SECTOR * r->n.sectors;
	t->wasted_bytes += r->wasted_bytes;
	t->n_executed += r->n.executions != 0;
	t->n_rows++;
}

static void read_not_recorded(struct session *s, struct trace *t)
{
	struct map *globals = NULL;
	uint32_t zero = 0;
	/* The one global of memtrace.bpf.c; libbpf names its map after the object. */
	if (open_map(s, "memtrace.bss", &globals, NULL))
		return;
	uint64_t *value = calloc(1, map_value_bytes(globals) + 8);
	if (value && map_info(globals)->value_size >= sizeof(*value) &&
		!map_lookup(globals, &zero, value))
		t->not_recorded = value[0];
	free(value);
	map_close(globals);
}

static int trace_read(
	struct session *s, const struct snapshot *snap, struct trace *t, struct diag *d)
{
	struct map *map = NULL;
	int err = open_map(s, "memtrace_sites", &map, d);
	if (err)
		return err;
	*t = (struct trace){ .snap = snap, .rows = calloc(snap->n_sites + 1, sizeof(*t->rows)) };
	if (map_info(map)->value_size != sizeof(struct memtrace_site) ||
		map_info(map)->key_size != 4)
		err = diag_set(d, EINVAL,
			"memtrace: the probe object is of another version than this command");
	else if (!t->rows)
		err = diag_set(d, ENOMEM, "out of memory");
	for (uint32_t i = 0; !err && i < snap->n_sites; i++)
		read_row(t, map, &snap->sites[i]);
	map_close(map);
	if (!err) {
		qsort(t->rows, t->n_rows, sizeof(*t->rows), by_waste);
		read_not_recorded(s, t);
	}
	return err;
}

/* -- text -------------------------------------------------------------------- */

/* 1234567 -> "1,234,567" */
static const char *grouped(uint64_t n, char out[32])
{
	char digits[24];
	int len = snprintf(digits, sizeof(digits), "%" PRIu64, n), at = 0;
	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			out[at++] = ',';
		out[at++] = digits[i];
	}
	out[at] = 0;
	return out;
}

static double per_request(const struct row *r, uint64_t n)
{
	return r->n.requests ? (double)n / (double)r->n.requests : 0;
}

static const char *place(struct arena *a, const struct snap_site *s)
{
	if (!*s->file || !s->line)
		return arena_printf(a, "PTX line %u", s->ptx_line);
	const char *slash = strrchr(s->file, '/');
	return arena_printf(a, "%s:%u", slash ? slash + 1 : s->file, s->line);
}

static bool moves_sectors(const struct row *r)
{
	return r->n.sectors != 0;
}

static void table_row(struct grid *g, struct arena *a, const struct row *r)
{
	char number[32];
	const char *at = place(a, r->site);
	grid_cell(g, "%s", name_short(a, r->kernel->name, NAME_WIDTH));
	grid_cell(g, "%s", at ? at : "?");
	grid_cell(g, "%s", r->site->opcode);
	grid_cell(g, "%s", snap_space_name(r->site->space));
	grid_cell(g, "%s", grouped(r->n.executions, number));
	grid_cell(g, "%s", grouped(r->n.requests, number));
	grid_cell(g, "%s", grouped(r->bytes, number));
	if (!moves_sectors(r)) {
		for (int i = 0; i < 3; i++)
			grid_cell(g, "-");
		return;
	}
	grid_cell(g, "%.2f", per_request(r, r->n.sectors));
	grid_cell(g, "%.2f", per_request(r, r->n.ideal_sectors));
	grid_cell(g, "%s", grouped(r->wasted_bytes, number));
}

static void table(const struct trace *t, struct arena *a, struct buf *out)
{
	static const char *const heads[] = { "<KERNEL", "<SOURCE", "<OPCODE", "<SPACE",
		">EXECUTIONS", ">REQUESTS", ">BYTES", ">SECTORS/REQ", ">IDEAL/REQ", ">WASTED BYTES",
		NULL };
	struct grid *g = grid_new(heads);
	size_t shown = 0;
	for (size_t i = 0; i < t->n_rows && shown < TABLE_ROWS; i++)
		if (t->rows[i].n.executions) {
			table_row(g, a, &t->rows[i]);
			shown++;
		}
	if (shown)
		grid_print(g, "", out);
	grid_free(g);
	if (t->n_executed > shown)
		buf_printf(out, "(%zu more sites in --json)\n", t->n_executed - shown);
	if (t->n_rows > t->n_executed)
		buf_printf(out, "%zu of %zu probed sites were never executed\n",
			t->n_rows - t->n_executed, t->n_rows);
}

/* What an access looks like, from its averages over a request. */
enum shape {
	SHAPE_IDEAL,
	SHAPE_SMALL,
	SHAPE_MISALIGNED,
	SHAPE_OWN_SECTORS,
	SHAPE_STRIDED,
	SHAPE_LOCAL
};

static enum shape shape_of(const struct row *r)
{
	double sectors = per_request(r, r->n.sectors), ideal = per_request(r, r->n.ideal_sectors);
	double lanes = per_request(r, r->n.executions);
	if (!r->wasted_bytes)
		return SHAPE_IDEAL;
	if (r->site->space == EGPU_SPACE_LOCAL)
		return SHAPE_LOCAL;
	if (ideal >= 0.9 * sectors)
		return SHAPE_SMALL;
	/* One aligned run of bytes that starts within a sector touches one sector more. */
	if (sectors <= ideal + 1.001 && ideal >= 1.999)
		return SHAPE_MISALIGNED;
	return lanes >= 2 && sectors >= 0.95 * lanes ? SHAPE_OWN_SECTORS : SHAPE_STRIDED;
}

static const char *verb(const struct row *r)
{
	return r->site->point == EBPF_POINT_STORE    ? "store"
	       : r->site->point == EBPF_POINT_ATOMIC ? "atomic"
						     : "load";
}

static void advise_shape(const struct row *r, struct buf *out)
{
	double sectors = per_request(r, r->n.sectors), ideal = per_request(r, r->n.ideal_sectors);
	unsigned used = (unsigned)(100.0 * (double)r->n.ideal_sectors / (double)r->n.sectors + 0.5);
	switch (shape_of(r)) {
	case SHAPE_SMALL:
		buf_printf(out,
			"%u%% of what moves is used (%.2f sectors a request, %.2f ideal): lanes "
			"that took no part leave gaps, and "
			"there is little to gain.",
			used, sectors, ideal);
		break;
	case SHAPE_MISALIGNED:
		buf_printf(out,
			"each request is one run of bytes that starts inside a 32-byte sector "
			"(%.2f sectors instead of %.2f): "
			"align the start of each row to 32 bytes, for instance by padding the row "
			"length.",
			sectors, ideal);
		break;
	case SHAPE_OWN_SECTORS:
		buf_printf(out,
			"every lane touches a sector of its own (%.2f sectors a request where %.2f "
			"would do, so %u%% of what "
			"moves is used): make neighbouring threads use neighbouring elements, by "
			"indexing with threadIdx.x "
			"last, by a structure of arrays, or by passing the tile through shared "
			"memory.",
			sectors, ideal, used);
		break;
	case SHAPE_STRIDED:
		buf_printf(out,
			"lanes leave gaps between them (%.2f sectors a request where %.2f would "
			"do, about every %.0fth element "
			"is used): lay out the elements that a warp reads together next to each "
			"other, or sort the indices "
			"they are gathered by.",
			sectors, ideal, ideal > 0 ? sectors / ideal : 0);
		break;
	case SHAPE_LOCAL:
		buf_printf(out, "this is local memory (a spilled register or an array with a "
				"computed index): fewer live values, a "
				"higher register limit or an index known at compile time keep it "
				"in registers.");
		break;
	case SHAPE_IDEAL:
		break;
	}
}

static void advice(const struct trace *t, struct arena *a, struct buf *out)
{
	const struct row *r = t->n_rows ? &t->rows[0] : NULL;
	char wasted[32], moved[32];
	if (!t->n_executed) {
		buf_puts(out, "No load, store or atomic of a probed kernel was executed.\n");
	} else if (!t->moved_bytes) {
		buf_puts(out, "No access to global or local memory was seen: there is nothing to "
			      "coalesce.\n");
	} else if (!t->wasted_bytes) {
		buf_printf(out,
			"Every access moves only the sectors it needs (%s bytes in all): "
			"coalescing has nothing "
			"left to gain.\n",
			grouped(t->moved_bytes, moved));
	} else {
		const char *at = place(a, r->site);
		buf_printf(out, "%s of %s bytes moved (%.0f%%) are wasted. Worst, %s in %s at %s: ",
			grouped(t->wasted_bytes, wasted), grouped(t->moved_bytes, moved),
			100.0 * (double)t->wasted_bytes / (double)t->moved_bytes, verb(r),
			name_short(a, r->kernel->name, NAME_WIDTH), at ? at : "?");
		advise_shape(r, out);
		buf_puts(out, "\n");
	}
}

static void losses(const struct trace *t, struct buf *out)
{
	if (t->n_skipped)
		buf_printf(out,
			"%zu sites could not be probed (reasons in --json, sites[].skipped)\n",
			t->n_skipped);
	if (t->n_beyond || t->not_recorded)
		buf_printf(out,
			"incomplete: %zu sites are beyond the %d that memtrace can count, %" PRIu64
			" requests not recorded; choose fewer kernels with -k\n",
			t->n_beyond, MEMTRACE_SITES, t->not_recorded);
}

/* -- JSON -------------------------------------------------------------------- */

static void json_row(struct json *j, const struct row *r)
{
	json_object(j);
	json_put_string(j, "kernel", r->kernel->demangled);
	json_put_string(j, "mangled", r->kernel->name);
	json_put_string(j, "function", r->site->function);
	json_put_u64(j, "site", r->site->id);
	json_put_u64(j, "ptx_line", r->site->ptx_line);
	json_put_string(j, "file", *r->site->file ? r->site->file : NULL);
	json_key(j, "line");
	r->site->line ? json_u64(j, r->site->line) : json_null(j);
	json_put_string(j, "op", verb(r));
	json_put_string(j, "opcode", r->site->opcode);
	json_put_string(j, "space", snap_space_name(r->site->space));
	json_put_u64(j, "executions", r->n.executions);
	json_put_u64(j, "requests", r->n.requests);
	json_put_u64(j, "bytes", r->bytes);
	json_put_u64(j, "sectors", r->n.sectors);
	json_put_u64(j, "ideal_sectors", r->n.ideal_sectors);
	json_put_u64(j, "wasted_bytes", r->wasted_bytes);
	json_put_bool(j, "recorded", r->site->id < MEMTRACE_SITES);
	json_object_end(j);
}

static void json_trace(const struct trace *t, const char *sentence, struct json *j)
{
	json_object(j);
	json_put_string(j, "name", "memtrace");
	json_key(j, "sites");
	json_array(j);
	for (size_t i = 0; i < t->n_rows; i++)
		json_row(j, &t->rows[i]);
	json_array_end(j);
	json_put_u64(j, "bytes", t->bytes);
	json_put_u64(j, "moved_bytes", t->moved_bytes);
	json_put_u64(j, "wasted_bytes", t->wasted_bytes);
	json_put_u64(j, "requests_not_recorded", t->not_recorded);
	json_put_u64(j, "sites_not_probed", t->n_skipped);
	json_put_string(j, "advice", sentence);
	json_object_end(j);
}

static int report(struct session *s, const struct snapshot *snap, struct buf *text,
	struct json *json, struct diag *d)
{
	struct trace t = { 0 };
	struct buf sentence = { 0 };
	struct arena *a = arena_new();
	int err = a ? trace_read(s, snap, &t, d) : diag_set(d, ENOMEM, "out of memory");
	if (err)
		goto out;
	table(&t, a, text);
	advice(&t, a, &sentence);
	if (sentence.data)
		buf_printf(text, "%s%s", t.n_executed ? "\n" : "", sentence.data);
	losses(&t, text);
	if (sentence.len)
		sentence.data[sentence.len - 1] = 0; /* the line's end */
	json_trace(&t, sentence.data, json);
out:
	buf_free(&sentence);
	free(t.rows);
	arena_free(a);
	return err;
}

const struct tool tool_memtrace = {
	.name = "memtrace",
	.summary = "memory traffic of every load and store: bytes, 32-byte sectors, what is wasted "
		   "and why",
	.report = report,
};
