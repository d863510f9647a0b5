/* dump.c - see dump.h. One walk over a map's elements serves text and JSON. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bars.h"
#include "cli/cli.h"
#include "cli/dump.h"
#include "cli/hex.h"
#include "cli/names.h"
#include "cli/typed.h"

enum {
	RECORDS_KEPT = 64, /* of one ring, for the dump */
	RECORDS_SHOWN = 8,
	RECORD_BYTES_KEPT = 256,
	MAX_BTF = 64 << 20,
	SMALL_ARRAY = 4096,
	MAX_DEVICES = 64,
	KERNEL_NAME = 80,
};

struct record {
	uint32_t bytes, kept;
	uint8_t data[RECORD_BYTES_KEPT];
};

struct dump_map {
	struct map *map;
	struct btf *btf;
	bool opened, btf_read;
	char name[64];
	uint64_t records, record_bytes;
	struct record *kept;
	uint32_t n_kept;
};

struct dump {
	struct session *session;
	int64_t device; /* -1: all */
	struct dump_map maps[EBPF_MAX_MAPS];
};

struct dump *dump_new(struct session *s)
{
	struct dump *d = calloc(1, sizeof(*d));
	if (d) {
		d->session = s;
		d->device = -1;
	}
	return d;
}

struct dump *dump_new_device(struct session *s, uint32_t device)
{
	struct dump *d = dump_new(s);
	if (d)
		d->device = device;
	return d;
}

void dump_free(struct dump *d)
{
	for (uint32_t i = 0; d && i < EBPF_MAX_MAPS; i++) {
		map_close(d->maps[i].map);
		btf__free(d->maps[i].btf);
		free(d->maps[i].kept);
	}
	free(d);
}

static const struct session_map *row(struct dump *d, uint32_t id)
{
	return id < EBPF_MAX_MAPS ? &session_data(d->session)->maps[id] : NULL;
}

static struct map *opened(struct dump *d, uint32_t id, struct diag *diag)
{
	struct dump_map *m = &d->maps[id];
	if (!m->opened && d->device < 0)
		map_open(d->session, id, &m->map, diag);
	else if (!m->opened)
		map_open_device(d->session, id, (uint32_t)d->device, &m->map, diag);
	m->opened = m->map != NULL;
	return m->map;
}

static struct btf *read_btf(struct dump *d, uint32_t btf_id)
{
	char path[512], *data;
	size_t size;
	snprintf(path, sizeof(path), "%s/btf-%u", session_path(d->session), btf_id);
	if (!btf_id || read_file(path, MAX_BTF, &data, &size, NULL))
		return NULL;
	struct btf *btf = btf__new(data, (uint32_t)size);
	free(data);
	return btf;
}

const struct btf *dump_btf(struct dump *d, uint32_t id, uint32_t *key_type, uint32_t *value_type)
{
	const struct session_map *r = row(d, id);
	struct dump_map *m = &d->maps[id];
	if (!m->btf_read)
		m->btf = read_btf(d, r->btf_id);
	m->btf_read = true;
	*key_type = r->btf_key_type_id;
	*value_type = r->btf_value_type_id;
	return m->btf;
}

/* libbpf's own maps for globals are called "<object>.bss"; the section says it better. */
const char *dump_map_name(struct dump *d, uint32_t id)
{
	const struct session_map *r = row(d, id);
	if (!r || !r->used || r->internal ||
		(session_client_number(d->session) && r->owner != session_client_number(d->session)))
		return NULL;
	uint32_t key_type, value_type;
	const struct btf *btf = dump_btf(d, id, &key_type, &value_type);
	const char *section = typed_section_name(btf, value_type);
	struct dump_map *m = &d->maps[id];
	snprintf(m->name, sizeof(m->name), "%.*s", (int)sizeof(r->name), r->name);
	if (section && *section)
		snprintf(m->name, sizeof(m->name), "%s", section);
	return strstr(m->name, ".rodata") || strstr(m->name, ".kconfig") ? NULL : m->name;
}

const char *dump_type_name(const struct session_map *r)
{
	if (map_threads_of(r))
		return "per-thread array";
	switch (r->type) {
	case BPF_MAP_TYPE_HASH:
		return "hash";
	case BPF_MAP_TYPE_LRU_HASH:
		return "LRU hash";
	case BPF_MAP_TYPE_PERCPU_HASH:
		return "per-CPU hash";
	case BPF_MAP_TYPE_LRU_PERCPU_HASH:
		return "LRU per-CPU hash";
	case BPF_MAP_TYPE_ARRAY:
		return "array";
	case BPF_MAP_TYPE_PERCPU_ARRAY:
		return "per-CPU array";
	case BPF_MAP_TYPE_QUEUE:
		return "queue";
	case BPF_MAP_TYPE_STACK:
		return "stack";
	case BPF_MAP_TYPE_BLOOM_FILTER:
		return "Bloom filter";
	case BPF_MAP_TYPE_STACK_TRACE:
		return "stacks of sites";
	case BPF_MAP_TYPE_RINGBUF:
		return "ring buffer";
	default:
		return "map of unknown type";
	}
}

uint32_t dump_max_entries(const struct session_map *r)
{
	uint32_t threads = map_threads_of(r);
	return threads ? r->max_entries / threads : r->max_entries;
}

static bool all_zero(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

/* -- the walk ---------------------------------------------------------------- */

struct element {
	const struct session_map *row;
	const struct btf *btf;
	uint32_t key_type, value_type;
	const uint8_t *key, *value; /* value: value_size bytes, summed */
	const uint8_t *slots; /* per CPU or thread with slots asked for: n_slots values, slot_bytes apart; else NULL */
	size_t slot_bytes;
	uint32_t n_slots;
};

/* Keys as numbers where they have the size of one, else as bytes. */
static int by_key(const void *pa, const void *pb, void *arg)
{
	uint32_t size = *(uint32_t *)arg;
	uint64_t a = 0, b = 0;
	if (size > 8)
		return memcmp(pa, pb, size);
	memcpy(&a, pa, size);
	memcpy(&b, pb, size);
	return a < b ? -1 : a > b;
}

/* All keys, sorted: a hash map's own order means nothing to a reader. The number of keys, or
 * -errno. */
static int64_t sorted_keys(struct map *map, const struct session_map *r, uint8_t **out)
{
	uint64_t n = 0, cap = 64;
	uint32_t size = r->key_size;
	uint8_t *keys = malloc(cap * size);
	/* A map that shrinks and grows while it is read may show a key again: never more than there
	 * can be. */
	while (keys && n < r->max_entries) {
		if (n == cap) {
			uint8_t *more = realloc(keys, 2 * cap * size);
			if (!more)
				break;
			keys = more;
			cap *= 2;
		}
		if (map_next_key(map, n ? keys + (n - 1) * size : NULL, keys + n * size))
			break;
		n++;
	}
	*out = keys;
	if (!keys || (n == cap && n < r->max_entries))
		return -ENOMEM;
	if (map_is_hash(r->type))
		qsort_r(keys, n, size, by_key, &size);
	return (int64_t)n;
}

/* Calls fn for every element; returns how many were left out for being all zero, or -errno. */
static int64_t walk(struct dump *d, uint32_t id, const struct dump_options *o,
	void (*fn)(const struct element *e, void *arg), void *arg, struct diag *diag)
{
	struct map *map = opened(d, id, diag);
	if (!map)
		return diag && diag->err ? -diag->err : -EINVAL;
	uint32_t threads = map_threads_of(map_info(map));
	struct element e = { .row = map_info(map), .n_slots = threads ? threads : map_possible_cpus(), .slot_bytes = map_slot_bytes(map) };
	e.btf = dump_btf(d, id, &e.key_type, &e.value_type);
	size_t value_bytes = map_value_bytes(map);
	uint8_t *keys = NULL, *value = calloc(1, value_bytes + 8),
		*slots = calloc(1, value_bytes + 8);
	int64_t n = sorted_keys(map, e.row, &keys), left_out = 0;
	bool several = map_has_slots(map), is_hash = map_is_hash(e.row->type);
	if (n < 0 || !value || !slots)
		left_out = diag_set(diag, ENOMEM, "out of memory");
	for (int64_t i = 0; i < n && value && slots; i++) {
		e.key = keys + i * e.row->key_size;
		if (several ? map_lookup_sum(map, e.key, value) : map_lookup(map, e.key, value))
			continue; /* deleted meanwhile */
		if (!o->zeros && !is_hash && all_zero(value, e.row->value_size)) {
			left_out++;
			continue;
		}
		e.value = value;
		e.slots = several && o->per_cpu && !map_lookup(map, e.key, slots) ? slots : NULL;
		fn(&e, arg);
	}
	free(keys);
	free(value);
	free(slots);
	return left_out;
}

/* -- text -------------------------------------------------------------------- */

static void text_key(const struct element *e, struct buf *out)
{
	struct json j;
	json_init(&j, out, JSON_TEXT);
	typed_value(&j, e->btf, e->key_type, e->key, e->row->key_size);
}

static void text_value(const struct element *e, const uint8_t *value, struct buf *out)
{
	struct json j;
	json_init(&j, out, JSON_TEXT);
	typed_value(&j, e->btf, e->value_type, value, e->row->value_size);
}

static void text_section(const struct element *e, struct buf *out)
{
	struct typed_var v;
	for (uint32_t i = 0; typed_section_var(e->btf, e->value_type, i, &v); i++) {
		struct json j;
		json_init(&j, out, JSON_TEXT);
		buf_printf(out, "  %s = ", v.name);
		if (v.offset <= e->row->value_size && v.size <= e->row->value_size - v.offset)
			typed_value(&j, e->btf, v.type, e->value + v.offset, v.size);
		buf_puts(out, "\n");
	}
}

static void text_element(const struct element *e, void *arg)
{
	struct buf *out = arg;
	if (typed_section_name(e->btf, e->value_type)) {
		text_section(e, out);
		return;
	}
	buf_puts(out, "  ");
	text_key(e, out);
	buf_puts(out, " = ");
	text_value(e, e->value, out);
	buf_puts(out, "\n");
	for (uint32_t i = 0; e->slots && i < e->n_slots; i++) {
		const uint8_t *slot = e->slots + i * e->slot_bytes;
		if (all_zero(slot, e->row->value_size))
			continue;
		buf_printf(out, "    %s %u: ", map_threads_of(e->row) ? "thread" : "cpu", i);
		text_value(e, slot, out);
		buf_puts(out, "\n");
	}
}

/* -- queues and stacks: their values, the one that would be popped first ------------- */

struct values {
	struct element e;
	struct buf *out;
	struct json *j;
};

static int one_value(void *arg, const void *value)
{
	struct values *v = arg;
	if (v->j) {
		typed_value(v->j, v->e.btf, v->e.value_type, value, v->e.row->value_size);
		return 0;
	}
	buf_puts(v->out, "  ");
	text_value(&v->e, value, v->out);
	buf_puts(v->out, "\n");
	return 0;
}

static int64_t all_values(struct dump *d, uint32_t id, struct buf *out, struct json *j, struct diag *diag)
{
	struct map *map = opened(d, id, diag);
	struct values v = { .e.row = map_info(map), .out = out, .j = j };
	v.e.btf = dump_btf(d, id, &v.e.key_type, &v.e.value_type);
	int err = map_each_value(map, one_value, &v);
	return err ? diag_set(diag, -err, "%s", strerror(-err)) : 0;
}

int dump_peek_text(struct dump *d, uint32_t id, bool pop, struct buf *out, struct diag *diag)
{
	struct map *map = opened(d, id, diag);
	if (!map)
		return diag_set(diag, ENOENT, "no such map");
	struct element e = { .row = map_info(map) };
	e.btf = dump_btf(d, id, &e.key_type, &e.value_type);
	uint8_t *value = calloc(1, e.row->value_size + 8);
	int err = !value ? -ENOMEM : pop ? map_pop(map, value) : map_peek(map, value);
	if (!err) {
		text_value(&e, value, out);
		buf_puts(out, "\n");
	}
	free(value);
	return err;
}

/* Values of this type, of egpu/probe.bpf.h, are buckets of powers of two. */
static bool is_histogram(const struct session_map *r, const struct btf *btf, uint32_t value_type)
{
	const struct btf_type *t = btf ? btf__type_by_id(btf, value_type) : NULL;
	const char *name = t && btf_is_typedef(t) ? btf__name_by_offset(btf, t->name_off) : NULL;
	return name && !strcmp(name, "egpu_hist_t") && r->key_size == 4 && r->value_size == 8;
}

static bool is_number(const struct session_map *r, const struct btf *btf, uint32_t value_type)
{
	const struct btf_type *t = typed_resolve(btf, value_type);
	return r->value_size && r->value_size <= 8 && (!t || btf_is_int(t));
}

static void bar_element(const struct element *e, void *arg)
{
	struct bars *b = arg;
	struct buf label = { 0 };
	uint64_t count = 0, bucket = 0;
	memcpy(&count, e->value, e->row->value_size);
	if (is_histogram(e->row, e->btf, e->value_type)) {
		memcpy(&bucket, e->key, e->row->key_size);
		bars_add_bucket(b, bucket, count);
		return;
	}
	text_key(e, &label);
	bars_add(b, label.data ? label.data : "", count);
	buf_free(&label);
}

static int64_t text_bars(struct dump *d, uint32_t id, const struct dump_options *o, struct buf *out, struct diag *diag)
{
	struct bars *b = bars_new();
	int64_t left_out = walk(d, id, o, bar_element, b, diag);
	bars_print(b, out);
	bars_free(b);
	return left_out;
}

static void text_ring(struct dump *d, uint32_t id, bool all, struct buf *out)
{
	const struct dump_map *m = &d->maps[id];
	uint32_t shown = all || m->n_kept < RECORDS_SHOWN ? m->n_kept : RECORDS_SHOWN;
	buf_printf(out, "  %lu record%s, %lu bytes\n", (unsigned long)m->records,
		m->records == 1 ? "" : "s", (unsigned long)m->record_bytes);
	for (uint32_t i = 0; i < shown; i++) {
		buf_puts(out, "  ");
		hex_print(out, m->kept[i].data, m->kept[i].kept, " ");
		buf_puts(out, m->kept[i].kept < m->kept[i].bytes ? " ..\n" : "\n");
	}
	if (m->records > shown)
		buf_printf(out, "  (%lu more not shown%s)\n", (unsigned long)(m->records - shown),
			shown < m->n_kept ? "; -v shows some of them" : "");
}

/* What the programs of chosen warps have left in a map. */
static const char *sampled_text(const struct session_map *r)
{
	if (r->sampled == SESSION_WEIGHED)
		return "estimates for all warps";
	if (r->sampled == SESSION_UNWEIGHED)
		return r->type == BPF_MAP_TYPE_RINGBUF ? "of chosen warps alone" : "of chosen warps alone: not scaled";
	return "part of it is of chosen warps alone, part is scaled: programs use it in both ways";
}

/* -- stacks of sites ---------------------------------------------------------------- */

static void text_frame(struct session *s, uint64_t frame, struct buf *out)
{
	const struct session_file *f = session_data(s);
	uint32_t row = (uint32_t)frame;
	if (frame >> 48 == MAP_FRAME_SITE >> 48 && row < SESSION_MAX_SITES) {
		const struct session_site *site = &f->sites[row];
		const char *file = session_text(s, site->file), *function = session_text(s, site->function);
		if (*file)
			buf_printf(out, "%s:%u", file, site->line);
		else
			buf_printf(out, "PTX line %u", site->ptx_line);
		buf_printf(out, "%s%s", *function ? " in " : "", function);
	} else if (frame >> 48 == MAP_FRAME_KERNEL >> 48 && row < SESSION_MAX_KERNELS) {
		struct arena *a = arena_new();
		const char *name = session_text(s, f->kernels[row].name);
		buf_printf(out, "kernel %s", a ? name_short(a, name, KERNEL_NAME) : name);
		arena_free(a);
	} else {
		buf_printf(out, "0x%llx", (unsigned long long)frame);
	}
}

static void one_stack(struct dump *d, uint32_t id, const uint64_t *frames, uint32_t n, struct buf *out, struct json *j)
{
	struct buf text = { 0 };
	if (j) {
		json_object(j);
		json_put_u64(j, "key", id);
		json_key(j, "frames");
		json_array(j);
	} else {
		buf_printf(out, "  %u = ", id);
	}
	for (uint32_t k = 0; k < n && frames[k]; k++) {
		text.len = 0;
		text_frame(d->session, frames[k], &text);
		if (j)
			json_string_n(j, text.data ? text.data : "", text.len);
		else
			buf_printf(out, "%s%.*s", k ? " < " : "", (int)text.len, text.data ? text.data : "");
	}
	if (j) {
		json_array_end(j);
		json_object_end(j);
	} else {
		buf_puts(out, "\n");
	}
	buf_free(&text);
}

static int64_t all_stacks(struct dump *d, uint32_t id, struct buf *out, struct json *j, struct diag *diag)
{
	struct map *map = opened(d, id, diag);
	uint32_t key = 0, n = map_info(map)->value_size / 8;
	uint64_t *frames = calloc(n, sizeof(*frames));
	int err = frames ? 0 : -ENOMEM;
	for (bool first = true; !err; first = false) {
		err = map_next_key(map, first ? NULL : &key, &key);
		if (!err && !map_lookup(map, &key, frames))
			one_stack(d, key, frames, n, out, j);
	}
	free(frames);
	return err == -ENOENT ? 0 : diag_set(diag, -err, "%s", strerror(-err));
}

/* -- records that wait in a ring ------------------------------------------------------ */

struct waiting {
	uint64_t records, bytes;
	bool all;
	struct buf *out;
	struct json *j;
};

static int one_waiting(void *arg, const void *data, uint32_t bytes, int64_t ns)
{
	struct waiting *w = arg;
	struct buf hex = { 0 };
	w->records++;
	w->bytes += bytes;
	hex_print(&hex, data, w->j || w->all || bytes < RECORD_BYTES_KEPT ? bytes : RECORD_BYTES_KEPT, w->j ? "" : " ");
	if (w->j) {
		json_object(w->j);
		json_key(w->j, "ns");
		json_i64(w->j, ns);
		json_put_string(w->j, "data", hex.data ? hex.data : "");
		json_object_end(w->j);
	} else {
		buf_printf(w->out, "  %+.3f us  %s\n", (double)ns / 1000, hex.data ? hex.data : "");
	}
	buf_free(&hex);
	return 0;
}

static int text_waiting(struct dump *d, uint32_t id, const struct dump_options *o, struct buf *out)
{
	struct buf lines = { 0 };
	struct waiting w = { .all = o->per_cpu, .out = &lines };
	int n = map_ring_look(d->maps[id].map, o->by_time, one_waiting, &w);
	buf_printf(out, "  %lu record%s wait%s to be read, %lu bytes%s\n", (unsigned long)w.records, w.records == 1 ? "" : "s",
		w.records == 1 ? "s" : "", (unsigned long)w.bytes, o->by_time ? ", by time" : "");
	buf_puts(out, lines.data ? lines.data : "");
	buf_free(&lines);
	return n < 0 ? n : 0;
}

static int json_waiting(struct dump *d, uint32_t id, const struct dump_options *o, struct json *j)
{
	struct waiting w = { .j = j };
	json_put_string(j, "order", o->by_time ? "time" : "arrival");
	json_key(j, "waiting");
	json_array(j);
	int n = map_ring_look(d->maps[id].map, o->by_time, one_waiting, &w);
	json_array_end(j);
	return n < 0 ? n : 0;
}

int dump_one_text(struct dump *d, uint32_t id, const struct dump_options *o, struct buf *out,
	struct diag *diag)
{
	const char *name = dump_map_name(d, id);
	struct map *map = name ? opened(d, id, diag) : NULL;
	if (!map)
		return diag_set(diag, ENOENT, "no such map");
	const struct session_map *r = map_info(map);
	uint32_t key_type, value_type;
	const struct btf *btf = dump_btf(d, id, &key_type, &value_type);
	if (typed_section_name(btf, value_type))
		buf_printf(out, "globals in %s\n", name);
	else
		buf_printf(out, "map %s: %s, %s%u %s", name, dump_type_name(r),
			map_is_hash(r->type) || map_is_keyless(r->type) ? "at most " : "", dump_max_entries(r),
			r->type == BPF_MAP_TYPE_RINGBUF ? "bytes"
			: dump_max_entries(r) == 1      ? "entry"
							: "entries");
	if (map_threads_of(r))
		buf_printf(out, " for each of %u threads", map_threads_of(r));
	if (!typed_section_name(btf, value_type))
		buf_puts(out, "\n");
	if (r->sampled)
		buf_printf(out, "  (%s)\n", sampled_text(r));
	int64_t left_out = 0;
	struct dump_options all = { .per_cpu = o->per_cpu, .zeros = o->zeros || typed_section_name(btf, value_type), .bars = o->bars };
	bool histogram = is_histogram(r, btf, value_type);
	if (r->type == BPF_MAP_TYPE_RINGBUF && o->records)
		left_out = text_waiting(d, id, o, out);
	else if (r->type == BPF_MAP_TYPE_RINGBUF)
		text_ring(d, id, o->per_cpu, out);
	else if (map_is_queue(r->type))
		left_out = all_values(d, id, out, NULL, diag);
	else if (r->type == BPF_MAP_TYPE_STACK_TRACE)
		left_out = all_stacks(d, id, out, NULL, diag);
	else if (r->type == BPF_MAP_TYPE_BLOOM_FILTER)
		buf_puts(out, "  (egpu map peek NAME VALUE tells whether a value may be in it)\n");
	else if (!o->per_cpu && (histogram || (o->bars && is_number(r, btf, value_type))))
		left_out = text_bars(d, id, &all, out, diag);
	else
		left_out = walk(d, id, &all, text_element, out, diag);
	if (left_out > 0 && !histogram)
		buf_printf(out, "  (%ld all-zero entr%s left out)\n", (long)left_out,
			left_out == 1 ? "y" : "ies");
	uint32_t devices[MAX_DEVICES];
	uint32_t n = d->device < 0 ? map_devices(map, devices, MAX_DEVICES) : 0;
	for (uint32_t i = 0; n > 1 && i < n; i++)
		buf_printf(out, "%s%u%s", i ? ", " : "  of devices ", devices[i],
			i + 1 < n ? "" : " together (egpu map dump --device N, --json have each)\n");
	uint64_t lost = map_lost(map);
	if (lost && map_threads_of(r))
		buf_printf(out, "  %lu accesses refused to threads beyond these: make map_extra (or BPFTIME_MAP_GPU_THREAD_COUNT) larger\n",
			(unsigned long)lost);
	else if (lost)
		buf_printf(out, "  %lu %s: make max_entries larger\n", (unsigned long)lost,
			r->type == BPF_MAP_TYPE_RINGBUF
				? "records lost because the ring was full"
				: "insertions refused because the map was full");
	return left_out < 0 ? (int)left_out : 0;
}

void dump_text(struct dump *d, const struct dump_options *o, struct buf *out)
{
	for (uint32_t id = 0; id < EBPF_MAX_MAPS; id++) {
		struct diag diag = { 0 };
		const char *name = dump_map_name(d, id);
		if (name && dump_one_text(d, id, o, out, &diag))
			buf_printf(out, "map %s: cannot be read: %s\n", name, diag.text);
	}
}

int dump_value_text(
	struct dump *d, uint32_t id, const void *key, struct buf *out, struct diag *diag)
{
	struct map *map = opened(d, id, diag);
	if (!map)
		return diag_set(diag, ENOENT, "no such map");
	struct element e = { .row = map_info(map), .key = key };
	e.btf = dump_btf(d, id, &e.key_type, &e.value_type);
	uint8_t *value = calloc(1, map_value_bytes(map) + 8);
	if (!value)
		return diag_set(diag, ENOMEM, "out of memory");
	int err = map_has_slots(map) ? map_lookup_sum(map, key, value)
					  : map_lookup(map, key, value);
	e.value = value;
	if (err)
		diag_set(diag, -err, "%s",
			err == -ENOENT ? "the map has no such key" : strerror(-err));
	else if (typed_section_name(e.btf, e.value_type))
		text_section(&e, out);
	else
		text_value(&e, value, out);
	if (!err)
		buf_puts(out, "\n");
	free(value);
	return err;
}

int dump_variable_text(struct dump *d, uint32_t id, const char *name, struct buf *out, struct diag *diag)
{
	const uint32_t key = 0;
	uint32_t key_type, type = 0;
	struct typed_var v;
	struct map *map = opened(d, id, diag);
	if (!map)
		return diag_set(diag, ENOENT, "no such map");
	const struct btf *btf = dump_btf(d, id, &key_type, &type);
	bool there = false;
	for (uint32_t i = 0; !there && typed_section_var(btf, type, i, &v); i++)
		there = !strcmp(v.name, name);
	const uint32_t size = map_info(map)->value_size;
	if (!there || v.offset > size || v.size > size - v.offset)
		return diag_set(diag, ENOENT, "there is no variable '%s'; egpu map dump %s lists them", name, dump_map_name(d, id));
	uint8_t *value = calloc(1, map_value_bytes(map) + 8);
	int err = value ? map_lookup(map, &key, value) : -ENOMEM;
	struct json j;
	json_init(&j, out, JSON_TEXT);
	if (err)
		diag_set(diag, -err, "%s", strerror(-err));
	else
		typed_value(&j, btf, v.type, value + v.offset, v.size);
	if (!err)
		buf_puts(out, "\n");
	free(value);
	return err;
}

/* -- JSON -------------------------------------------------------------------- */

static void json_section(const struct element *e, struct json *j)
{
	struct typed_var v;
	for (uint32_t i = 0; typed_section_var(e->btf, e->value_type, i, &v); i++) {
		json_key(j, v.name);
		if (v.offset <= e->row->value_size && v.size <= e->row->value_size - v.offset)
			typed_value(j, e->btf, v.type, e->value + v.offset, v.size);
		else
			json_null(j);
	}
}

static void json_element(const struct element *e, void *arg)
{
	struct json *j = arg;
	if (typed_section_name(e->btf, e->value_type)) {
		json_section(e, j);
		return;
	}
	json_object(j);
	json_key(j, "key");
	typed_value(j, e->btf, e->key_type, e->key, e->row->key_size);
	json_key(j, "value");
	typed_value(j, e->btf, e->value_type, e->value, e->row->value_size);
	if (e->slots) {
		bool threads = map_threads_of(e->row);
		uint32_t n = e->n_slots;
		while (threads && n && all_zero(e->slots + (n - 1) * e->slot_bytes, e->row->value_size))
			n--;
		json_key(j, threads ? "threads" : "cpus");
		json_array(j);
		for (uint32_t i = 0; i < n; i++)
			typed_value(j, e->btf, e->value_type, e->slots + i * e->slot_bytes, e->row->value_size);
		json_array_end(j);
	}
	json_object_end(j);
}

static void json_ring(struct dump *d, uint32_t id, struct json *j)
{
	const struct dump_map *m = &d->maps[id];
	json_put_u64(j, "records", m->records);
	json_put_u64(j, "record_bytes", m->record_bytes);
	json_key(j, "first_records");
	json_array(j);
	for (uint32_t i = 0; i < m->n_kept; i++) {
		struct buf hex = { 0 };
		hex_print(&hex, m->kept[i].data, m->kept[i].kept, "");
		json_string(j, hex.data ? hex.data : "");
		buf_free(&hex);
	}
	json_array_end(j);
}

/* Each device's own share, where several have the map. */
static void json_devices(struct dump *d, uint32_t id, const struct dump_options *o, struct json *j)
{
	uint32_t devices[MAX_DEVICES];
	uint32_t n = d->device < 0 ? map_devices(opened(d, id, NULL), devices, MAX_DEVICES) : 0;
	if (n < 2)
		return;
	json_key(j, "devices");
	json_array(j);
	for (uint32_t i = 0; i < n; i++) {
		struct dump *one = dump_new_device(d->session, devices[i]);
		json_object(j);
		json_put_u64(j, "device", devices[i]);
		json_key(j, "map");
		if (!one || dump_one_json(one, id, o, j, NULL) == -ENOENT)
			json_null(j);
		json_object_end(j);
		dump_free(one);
	}
	json_array_end(j);
}

int dump_one_json(struct dump *d, uint32_t id, const struct dump_options *o, struct json *j,
	struct diag *diag)
{
	struct map *map = dump_map_name(d, id) ? opened(d, id, diag) : NULL;
	if (!map)
		return diag_set(diag, ENOENT, "no such map");
	const struct session_map *r = map_info(map);
	uint32_t key_type, value_type;
	const struct btf *btf = dump_btf(d, id, &key_type, &value_type);
	bool section = typed_section_name(btf, value_type);
	/* Small arrays are given in full, so that a script finds each index. */
	struct dump_options all = { .per_cpu = o->per_cpu,
		.zeros = o->zeros || section || dump_max_entries(r) <= SMALL_ARRAY };
	int64_t left_out = 0;
	json_object(j);
	json_put_string(j, "type", section ? "globals" : dump_type_name(r));
	json_put_u64(j, "max_entries", dump_max_entries(r));
	if (map_threads_of(r))
		json_put_u64(j, "threads", map_threads_of(r));
	json_put_u64(j, "lost", map_lost(map));
	if (r->sampled)
		json_put_string(j, "sampled", r->sampled == SESSION_WEIGHED ? "scaled" : r->sampled == SESSION_UNWEIGHED ? "not scaled" : "in part");
	if (r->type == BPF_MAP_TYPE_RINGBUF && o->records) {
		left_out = json_waiting(d, id, o, j);
	} else if (r->type == BPF_MAP_TYPE_RINGBUF) {
		json_ring(d, id, j);
	} else if (map_is_queue(r->type)) {
		json_key(j, "values");
		json_array(j);
		left_out = all_values(d, id, NULL, j, diag);
		json_array_end(j);
		json_devices(d, id, o, j);
	} else if (r->type == BPF_MAP_TYPE_STACK_TRACE) {
		json_key(j, "entries");
		json_array(j);
		left_out = all_stacks(d, id, NULL, j, diag);
		json_array_end(j);
	} else if (r->type != BPF_MAP_TYPE_BLOOM_FILTER) {
		json_key(j, section ? "variables" : "entries");
		section ? json_object(j) : json_array(j);
		left_out = walk(d, id, &all, json_element, j, diag);
		section ? json_object_end(j) : json_array_end(j);
		json_put_u64(j, "zero_entries_left_out", left_out > 0 ? (uint64_t)left_out : 0);
		json_devices(d, id, o, j);
	}
	json_object_end(j);
	return left_out < 0 ? (int)left_out : 0;
}

void dump_json(struct dump *d, const struct dump_options *o, struct json *j)
{
	json_object(j);
	for (uint32_t id = 0; id < EBPF_MAX_MAPS; id++) {
		const char *name = dump_map_name(d, id);
		if (!name || !opened(d, id, NULL))
			continue;
		json_key(j, name);
		dump_one_json(d, id, o, j, NULL);
	}
	json_object_end(j);
}

/* -- losses and rings -------------------------------------------------------- */

static int keep_record(void *arg, const void *data, uint32_t bytes)
{
	struct dump_map *m = arg;
	m->records++;
	m->record_bytes += bytes;
	if (!m->kept)
		m->kept = calloc(RECORDS_KEPT, sizeof(*m->kept));
	if (!m->kept || m->n_kept == RECORDS_KEPT)
		return 0;
	struct record *r = &m->kept[m->n_kept++];
	r->bytes = bytes;
	r->kept = bytes < RECORD_BYTES_KEPT ? bytes : RECORD_BYTES_KEPT;
	memcpy(r->data, data, r->kept);
	return 0;
}

void dump_drain_rings(struct dump *d)
{
	for (uint32_t id = 0; id < EBPF_MAX_MAPS; id++)
		if (row(d, id)->type == BPF_MAP_TYPE_RINGBUF && dump_map_name(d, id) &&
			opened(d, id, NULL))
			map_ring_consume(d->maps[id].map, keep_record, &d->maps[id]);
}

static uint64_t lost(struct dump *d, bool rings)
{
	uint64_t n = 0;
	for (uint32_t id = 0; id < EBPF_MAX_MAPS; id++)
		if (dump_map_name(d, id) && (row(d, id)->type == BPF_MAP_TYPE_RINGBUF) == rings &&
			opened(d, id, NULL))
			n += map_lost(d->maps[id].map);
	return n;
}

uint64_t dump_records_lost(struct dump *d)
{
	return lost(d, true);
}

uint64_t dump_insertions_refused(struct dump *d)
{
	return lost(d, false);
}
