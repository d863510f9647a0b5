/* Probes in the style of common tracing tools (tests/probes/tools), compiled by each clang there is at -O1, -O2 and -Os: all
 * verify, and leave the same maps and records on softgpu as in the interpreter.
 *
 * usage: translate_tools [LIBRARY]     the driver; default: softgpu's of this build
 */
#include "tap.h"

#include <unistd.h>

#include "cpu/interp.h"
#include "device.h"
#include "map/map.h"
#include "probe.h"
#include "ringwalk.h"
#include "translate/translate.h"

enum { BLOCKS = 6, THREADS = 128, MAX_ENTRIES = 1024, MAX_RECORDS = 4096, RECORD = 32, PROGRAMS = 13 };

static const char *const clangs[] = { "clang-14", "clang-16", "clang-19" };
static const char *const levels[] = { "1", "2", "s" };

/* -- maps of the interpreter's side ------------------------------------------ */

struct cpu_map {
	const struct ebpf_map *def;
	uint8_t *values; /* stride round_up(value_size, 8) */
	uint8_t (*keys)[16];
	bool *live; /* hashes */
	uint8_t (*records)[RECORD];
	uint32_t n_records;
};

struct cpu {
	struct cpu_map maps[EBPF_MAX_MAPS];
	_Alignas(8) uint8_t open[RECORD];
	uint32_t open_map;
};

static bool is_hash(const struct cpu_map *m)
{
	return map_is_hash(m->def->type);
}

static uint8_t *value_at(struct cpu_map *m, uint32_t k)
{
	return m->values + (size_t)k * ((m->def->value_size + 7) & ~7u);
}

static void *cpu_lookup(void *self, uint32_t map, const void *key)
{
	struct cpu_map *m = &((struct cpu *)self)->maps[map];
	uint32_t index;
	if (!is_hash(m)) {
		memcpy(&index, key, 4);
		return index < m->def->max_entries ? value_at(m, index) : NULL;
	}
	for (uint32_t k = 0; k < m->def->max_entries; k++)
		if (m->live[k] && !memcmp(m->keys[k], key, m->def->key_size))
			return value_at(m, k);
	return NULL;
}

static int64_t cpu_update(void *self, uint32_t map, const void *key, const void *value, uint64_t flags)
{
	struct cpu_map *m = &((struct cpu *)self)->maps[map];
	uint8_t *to = cpu_lookup(self, map, key);
	if (to && flags == BPF_NOEXIST)
		return -17;
	for (uint32_t k = 0; is_hash(m) && !to && k < m->def->max_entries; k++)
		if (!m->live[k]) {
			m->live[k] = true;
			memcpy(m->keys[k], key, m->def->key_size);
			to = value_at(m, k);
		}
	if (!to)
		return -7;
	memcpy(to, value, m->def->value_size);
	return 0;
}

static int64_t cpu_delete(void *self, uint32_t map, const void *key)
{
	struct cpu_map *m = &((struct cpu *)self)->maps[map];
	uint8_t *at = cpu_lookup(self, map, key);
	if (!at)
		return -2;
	m->live[(size_t)(at - m->values) / ((m->def->value_size + 7) & ~7u)] = false;
	return 0;
}

static void *cpu_value(void *self, uint32_t map)
{
	return ((struct cpu *)self)->maps[map].values;
}

static void *cpu_reserve(void *self, uint32_t map, uint64_t bytes)
{
	struct cpu *c = self;
	c->open_map = map;
	memset(c->open, 0, sizeof(c->open));
	return bytes <= RECORD ? c->open : NULL;
}

static void keep(struct cpu *c, uint32_t map, const void *data, uint64_t bytes)
{
	struct cpu_map *m = &c->maps[map];
	if (m->n_records < MAX_RECORDS && bytes <= RECORD)
		memcpy(m->records[m->n_records++], data, bytes);
}

static void cpu_commit(void *self, void *record, bool discard, uint64_t flags)
{
	struct cpu *c = self;
	if (!discard)
		keep(c, c->open_map, record, RECORD);
}

static int64_t cpu_output(void *self, uint32_t map, const void *data, uint64_t bytes, uint64_t flags)
{
	keep(self, map, data, bytes);
	return 0;
}

static const struct interp_ops ops = { .lookup = cpu_lookup,
	.update = cpu_update,
	.delete = cpu_delete,
	.value = cpu_value,
	.ring_reserve = cpu_reserve,
	.ring_commit = cpu_commit,
	.ring_output = cpu_output };

static struct cpu *cpu_new(struct arena *a, const struct probe_object *o)
{
	struct cpu *c = arena_alloc(a, sizeof(*c));
	for (uint32_t k = 0; k < o->n_maps; k++) {
		struct cpu_map *m = &c->maps[k];
		bool ring = o->maps[k].type == BPF_MAP_TYPE_RINGBUF;
		uint32_t n = ring ? 1 : o->maps[k].max_entries;
		m->def = &o->maps[k];
		m->values = arena_array(a, (size_t)n + 1, (m->def->value_size + 15) & ~7u);
		m->keys = arena_array(a, n, sizeof(*m->keys));
		m->live = arena_array(a, n, sizeof(*m->live));
		m->records = arena_array(a, MAX_RECORDS, sizeof(*m->records));
		if (m->def->values)
			memcpy(m->values, m->def->values, m->def->value_size);
	}
	return c;
}

/* Every thread, one after the other, in the checked interpreter. */
static bool cpu_run(struct cpu *c, const struct ebpf_program *p, uint64_t max_insns)
{
	static _Alignas(8) uint8_t context[1024];
	for (uint32_t t = 0; t < BLOCKS * THREADS; t++) {
		uint32_t words[][2] = { { EBPF_FIELD_LANE, t % 32 }, { EBPF_FIELD_THREAD_X, t % THREADS },
			{ EBPF_FIELD_BLOCK_X, t / THREADS }, { EBPF_FIELD_BLOCK_DIM_X, THREADS },
			{ EBPF_FIELD_GRID_DIM_X, BLOCKS } };
		for (size_t k = 0; k < sizeof(words) / sizeof(words[0]); k++)
			memcpy(context + ebpf_fields[words[k][0]].offset, &words[k][1], 4);
		struct interp run = { .program = p,
			.memory = context,
			.ops = &ops,
			.self = c,
			.max_insns = max_insns,
			.check = true };
		struct interp_result r;
		if (interp_run(&run, &r)) {
			printf("# %s: thread %u: insn %u: %s\n", p->name, t, r.at, r.violation);
			return false;
		}
	}
	return true;
}

/* -- the device's side ------------------------------------------------------- */

struct device_maps {
	uint64_t at[EBPF_MAX_MAPS];
	size_t bytes[EBPF_MAX_MAPS];
};

static struct device *device;

static bool place(const struct probe_object *o, struct device_maps *out, uint64_t table[72])
{
	for (uint32_t k = 0; k < o->n_maps; k++) {
		const struct ebpf_map *m = &o->maps[k];
		bool many = m->type == BPF_MAP_TYPE_PERCPU_ARRAY || m->type == BPF_MAP_TYPE_RINGBUF;
		uint32_t replicas = many ? device_sms(device) : 1;
		size_t bytes = map_device_bytes(m->type, m->key_size, m->value_size, m->max_entries, replicas);
		char *image = calloc(1, bytes);
		map_image_init((struct map_image *)image, m->type, m->key_size, m->value_size, m->max_entries, replicas);
		if (m->values)
			memcpy(image + MAP_IMAGE_HEADER, m->values, m->value_size);
		out->bytes[k] = bytes;
		out->at[k] = table[k] = device_alloc(device, bytes);
		bool fine = out->at[k] && device_write(device, out->at[k], image, bytes);
		free(image);
		if (!fine)
			return false;
	}
	table[EBPF_TABLE_SMS] = device_sms(device);
	return true;
}

static const char *version_of(const char *target)
{
	int sm = atoi(target + 3);
	return sm <= 75 ? "6.3" : sm <= 86 ? "7.1" : sm <= 90 ? "8.0" : "9.0";
}

static bool device_run(const struct ebpf_fragment *f, uint32_t n, uint64_t table[72])
{
	struct buf ptx = { 0 };
	uint32_t grid[3] = { BLOCKS, 1, 1 }, block[3] = { THREADS, 1, 1 };
	uint64_t args[2] = { 0, 0 };
	probe_hosts(f, n, version_of(device_target(device)), device_target(device), &ptx);
	struct device_module *m = device_load(device, ptx.data);
	uint64_t at = m ? device_symbol(device, m, "__egpu_table", NULL) : 0;
	bool fine = at && device_write(device, at, table, 72 * 8);
	for (uint32_t k = 0; k < n && fine; k++) {
		char name[16];
		snprintf(name, sizeof(name), "host%u", k);
		fine = device_launch(device, m, name, grid, block, args, 2) && device_wait(device);
	}
	device_unload(device, m);
	buf_free(&ptx);
	return fine;
}

/* -- comparison -------------------------------------------------------------- */

static int compare_records(const void *a, const void *b)
{
	return memcmp(a, b, RECORD);
}

struct got {
	uint8_t all[MAX_RECORDS][RECORD];
	uint32_t n;
};

static void take(void *arg, const void *record, uint32_t bytes)
{
	struct got *got = arg;
	if (got->n == MAX_RECORDS || bytes > RECORD)
		return;
	memset(got->all[got->n], 0, RECORD);
	memcpy(got->all[got->n++], record, bytes);
}

static bool same_ring(struct cpu_map *m, const struct map_image *image)
{
	static struct got got;
	got.n = 0;
	struct ringwalk w = ring_walk(image, take, &got);
	qsort(got.all, got.n, RECORD, compare_records);
	qsort(m->records, m->n_records, RECORD, compare_records);
	return !w.bad && !w.lost && got.n == m->n_records && got.n &&
	       !memcmp(got.all, m->records, (size_t)got.n * RECORD);
}

static bool same_hash(struct cpu *c, uint32_t map, const struct map_image *image)
{
	struct cpu_map *m = &c->maps[map];
	uint32_t live = 0, expected = 0;
	uint64_t bytes = map_hash_slot_bytes(image->type, image->key_size, image->value_size);
	for (uint64_t k = 0; k < map_hash_slots(image->max_entries); k++) {
		const uint8_t *slot = (const uint8_t *)image + MAP_IMAGE_HEADER + k * bytes;
		uint32_t slot_state;
		memcpy(&slot_state, slot, 4);
		if ((slot_state & MAP_SLOT_STATE) != MAP_SLOT_LIVE)
			continue;
		live++;
		const uint8_t *want = cpu_lookup(c, map, slot + 8);
		if (!want || memcmp(want, slot + 8 + map_round_up(image->key_size, 8), image->value_size))
			return false;
	}
	for (uint32_t k = 0; k < m->def->max_entries; k++)
		expected += m->live[k];
	return live == expected;
}

/* Words of a per-CPU map are summed over its replicas. */
static bool same_array(struct cpu_map *m, const struct map_image *image)
{
	uint32_t stride = (m->def->value_size + 7) & ~7u;
	size_t bytes = (size_t)m->def->max_entries * stride, replica = map_replica_bytes(m->def->max_entries, m->def->value_size);
	const uint8_t *data = (const uint8_t *)image + MAP_IMAGE_HEADER;
	if (m->def->type == BPF_MAP_TYPE_ARRAY) {
		for (uint32_t k = 0; k < m->def->max_entries; k++)
			if (memcmp(value_at(m, k), data + (size_t)k * stride, m->def->value_size))
				return false;
		return true;
	}
	for (size_t at = 0; at < bytes; at += 8) {
		uint64_t sum = 0, word;
		for (uint32_t r = 0; r < image->n_replicas; r++) {
			memcpy(&word, data + r * replica + at, 8);
			sum += word;
		}
		if (memcmp(&sum, m->values + at, 8))
			return false;
	}
	return true;
}

static bool same_maps(struct cpu *c, const struct probe_object *o, const struct device_maps *d)
{
	bool same = true;
	for (uint32_t k = 0; k < o->n_maps; k++) {
		struct map_image *image = malloc(d->bytes[k]);
		bool one = device_read(device, image, d->at[k], d->bytes[k]) &&
			(o->maps[k].type == BPF_MAP_TYPE_RINGBUF ? same_ring(&c->maps[k], image) :
				is_hash(&c->maps[k]) ? same_hash(c, k, image) : same_array(&c->maps[k], image));
		if (!one)
			printf("# map %s differs\n", o->maps[k].name);
		same &= one;
		free(image);
	}
	return same;
}

/* -- one object -------------------------------------------------------------- */

static void test_object(const char *path, const char *what)
{
	struct arena *a = arena_new();
	struct probe_object *o = arena_alloc(a, sizeof(*o));
	struct ebpf_fragment fragments[PROGRAMS + 3];
	struct device_maps maps = { 0 };
	uint64_t table[72] = { 0 };
	uint32_t n = 0;
	bool ran = true;
	if (!ok(probe_read(a, path, o) && o->n_progs == PROGRAMS, "%s: %d programs", what, PROGRAMS)) {
		arena_free(a);
		return;
	}
	struct cpu *c = cpu_new(a, o);
	for (uint32_t k = 0; k < o->n_progs; k++) {
		struct verifier_result v;
		struct diag d = { 0 };
		const struct ebpf_program *p = &o->progs[k].program;
		if (verifier_check(a, p, NULL, &v, NULL, &d) ||
			translate_program(a, p, &v, o->progs[k].point, o->progs[k].warp, &fragments[n], &d)) {
			printf("# %s: %s\n", p->name, d.text);
			continue;
		}
		n++;
		ran &= cpu_run(c, p, v.max_run_insns);
	}
	is_int(n, PROGRAMS, "%s: all verify and translate", what);
	ok(ran, "%s: the checked interpreter finds nothing, and no run is longer than promised", what);
	ok(place(o, &maps, table) && device_run(fragments, n, table) && same_maps(c, o, &maps), "%s: maps and records are the same", what);
	for (uint32_t k = 0; k < o->n_maps; k++)
		device_free(device, maps.at[k]);
	arena_free(a);
}

static bool there_is(const char *clang)
{
	char command[128];
	snprintf(command, sizeof(command), "%s --version >/dev/null 2>&1", clang);
	return !system(command);
}

int main(int argc, char **argv)
{
	const char *why, *library = argc > 1 ? argv[1] : NULL;
	char dir[] = "/tmp/egpu-tools-XXXXXX", command[1024];
	struct buf all = { 0 };
	device = device_open_own(library, &why);
	if (!device || !mkdtemp(dir)) {
		tap_skip(why);
		return tap_done();
	}
	bool have[3];
	for (int c = 0; c < 3; c++) {
		have[c] = there_is(clangs[c]);
		for (int l = 0; l < 3 && have[c]; l++) /* all at once */
			buf_printf(&all, "%s -O%s -g -target bpf -mcpu=v3 -I%s -I/usr/include/$(uname -m)-linux-gnu -c %s/tools/all.bpf.c -o %s/%s-%s.o & ",
				clangs[c], levels[l], PROBE_INCLUDE, PROBE_SOURCES, dir, clangs[c], levels[l]);
	}
	buf_puts(&all, "wait");
	if (system(all.data))
		printf("# a compiler failed\n");
	buf_free(&all);
	for (int c = 0; c < 3; c++)
		for (int l = 0; l < 3; l++) {
			char path[128], what[32];
			snprintf(path, sizeof(path), "%s/%s-%s.o", dir, clangs[c], levels[l]);
			snprintf(what, sizeof(what), "%s -O%s", clangs[c], levels[l]);
			if (have[c])
				test_object(path, what);
			else
				tap_skip("no such clang");
		}
	device_close(device);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command) ? 1 : tap_done();
}
