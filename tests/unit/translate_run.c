/* Probes compiled by clang run on a device by many blocks: counts exact, hash maps without lost or
 * double keys, ring buffers whose records and drops add up.
 *
 * usage: translate_run [LIBRARY]     the driver; default: softgpu's of this build
 */
#include "tap.h"

#include <unistd.h>

#include "device.h"
#include "egpu/access.h"
#include "map/internal.h"
#include "map/map.h"
#include "probe.h"
#include "ringwalk.h"
#include "translate/translate.h"

enum { BLOCKS = 48, THREADS = 128, LANES = 32 };

struct run {
	struct device *dev;
	struct arena *arena;
	struct probe_object object;
	struct ebpf_fragment fragment;
	uint64_t images[EBPF_MAX_MAPS];
	size_t image_bytes[EBPF_MAX_MAPS];
	struct device_module *module;
};

static struct device *device;
static const char *clang;
static char dir[64];

static bool prepare(struct run *r, const char *name, const char *cpu)
{
	char source[512], object[128];
	struct verifier_result v;
	struct diag d = { 0 };
	memset(r, 0, sizeof(*r));
	r->arena = arena_new();
	snprintf(source, sizeof(source), "%s/%s.bpf.c", PROBE_SOURCES, name);
	snprintf(object, sizeof(object), "%s/%s.%s.o", dir, name, cpu);
	if (!probe_compile(clang, source, cpu, object) || !probe_read(r->arena, object, &r->object))
		return false;
	if (!strcmp(name, "trace"))
		probe_add_trace_map(&r->object, 1 << 16);
	struct buf log = { 0 };
	struct verifier_options options = { .log_level = 1 };
	int err = verifier_check(r->arena, &r->object.progs[0].program, &options, &v, &log, &d);
	if (err)
		printf("# verifier: %s\n# %s\n", d.text, log.data ? log.data : "");
	buf_free(&log);
	if (!err)
		err = translate_program(r->arena, &r->object.progs[0].program, &v,
			r->object.progs[0].point, r->object.progs[0].warp, &r->fragment, &d);
	if (err)
		printf("# %s: %s\n", name, d.text);
	return !err;
}

/* As the loader and the agent decide it. */
static bool is_folded(const struct run *r, const struct ebpf_map *m)
{
	const struct ebpf_map_use *use = &r->fragment.use[m->id];
	bool hash = m->type == BPF_MAP_TYPE_HASH;
	return (hash || m->type == BPF_MAP_TYPE_ARRAY) && use->folded && !use->other && !use->replaced && ebpf_folds_agree(use->fold, hash);
}

static bool place_maps(struct run *r)
{
	for (uint32_t k = 0; k < r->object.n_maps; k++) {
		const struct ebpf_map *m = &r->object.maps[k];
		bool many = m->type == BPF_MAP_TYPE_PERCPU_ARRAY || m->type == BPF_MAP_TYPE_RINGBUF ||
			    is_folded(r, m);
		uint32_t replicas = many ? device_sms(r->dev) : 1;
		uint64_t bytes = map_device_bytes(
			m->type, m->key_size, m->value_size, m->max_entries, replicas);
		char *image = bytes ? calloc(1, bytes) : NULL;
		if (!image)
			return false;
		map_image_init((struct map_image *)image, m->type, m->key_size, m->value_size,
			m->max_entries, replicas);
		if (m->values)
			memcpy(image + MAP_IMAGE_HEADER, m->values, m->value_size);
		r->image_bytes[k] = bytes;
		r->images[k] = device_alloc(r->dev, bytes);
		bool fine = r->images[k] && device_write(r->dev, r->images[k], image, bytes);
		free(image);
		if (!fine)
			return false;
	}
	return true;
}

static const char *version_of(const char *target)
{
	int sm = atoi(target + 3);
	return sm <= 75 ? "6.3" : sm <= 86 ? "7.1" : sm <= 90 ? "8.0" : "9.0";
}

static bool load_as(struct run *r, const char *version, const char *target)
{
	struct buf ptx = { 0 };
	uint64_t table[EBPF_TABLE_SYMBOLS] = { 0 };
	probe_hosts(&r->fragment, 1, version, target, &ptx);
	r->module = device_load(r->dev, ptx.data);
	buf_free(&ptx);
	if (!r->module)
		return false;
	for (uint32_t k = 0; k < r->object.n_maps; k++)
		table[k] = r->images[k];
	for (uint32_t k = 0; k < r->object.n_maps; k++) {
		const struct ebpf_map *m = &r->object.maps[k];
		if (is_folded(r, m) && device_sms(r->dev) > 1)
			table[EBPF_TABLE_REPLICAS + m->id] = m->type == BPF_MAP_TYPE_HASH
								     ? map_hash_replica_bytes(m->value_size, m->max_entries)
								     : map_replica_bytes(m->max_entries, m->value_size);
	}
	table[EBPF_TABLE_SMS] = device_sms(r->dev);
	table[EBPF_TABLE_CLOCK] = 1000;
	table[EBPF_TABLE_SEED] = 0x1234567;
	uint64_t at = device_symbol(r->dev, r->module, "__egpu_table", NULL);
	return at && device_write(r->dev, at, table, sizeof(table));
}

static bool load(struct run *r)
{
	return load_as(r, version_of(device_target(r->dev)), device_target(r->dev));
}

static bool launch(struct run *r, uint32_t blocks, uint32_t threads, uint64_t p0, uint64_t p1)
{
	uint32_t grid[3] = { blocks, 1, 1 }, block[3] = { threads, 1, 1 };
	uint64_t args[2] = { p0, p1 };
	return device_launch(r->dev, r->module, "host0", grid, block, args, 2) &&
	       device_wait(r->dev);
}

static void finish(struct run *r)
{
	device_unload(r->dev, r->module);
	for (uint32_t k = 0; k < r->object.n_maps; k++)
		device_free(r->dev, r->images[k]);
	arena_free(r->arena);
}

static uint8_t *data_of(struct map_image *image)
{
	return (uint8_t *)image + MAP_IMAGE_HEADER;
}

/* Adds an array's replicas to its first. */
static void fold(struct map_image *image, const struct ebpf_map_use *use)
{
	uint64_t replica = map_replica_bytes(image->max_entries, image->value_size),
		 stride = map_stride(image->value_size);
	for (uint32_t r = 1; r < image->n_replicas; r++)
		for (uint64_t k = 0; k < image->max_entries; k++)
			map_fold_value(use->fold, data_of(image) + k * stride,
				data_of(image) + r * replica + k * stride, NULL, false, stride);
}

/* Adds a hash's replicas to its slots. */
static void fold_slots(struct map_image *image, const struct ebpf_map_use *use)
{
	uint32_t key = image->key_size, value = image->value_size, entries = image->max_entries;
	for (uint32_t r = 0; r < image->n_replicas && image->n_replicas > 1; r++)
		for (uint64_t s = 0; s < map_hash_slots(entries); s++)
			map_fold_value(use->fold, data_of(image) + map_hash_value_at(image->type, key, value, entries, s, 0),
				data_of(image) + map_hash_replicas_at(key, value, entries) + r * map_hash_replica_bytes(value, entries) +
					s * map_stride(value),
				NULL, false, map_stride(value));
}

/* The image of a map as it is on the device now; the caller frees it. */
static struct map_image *image_of(struct run *r, const char *name)
{
	const struct ebpf_map *m = probe_map(&r->object, name);
	struct map_image *image = malloc(r->image_bytes[m->id]);
	device_read(r->dev, image, r->images[m->id], r->image_bytes[m->id]);
	if (m->type == BPF_MAP_TYPE_HASH)
		fold_slots(image, &r->fragment.use[m->id]);
	if (m->type == BPF_MAP_TYPE_ARRAY)
		fold(image, &r->fragment.use[m->id]);
	return image;
}

/* Sets up and starts a probe over BLOCKS blocks. */
static bool run_probe(struct run *r, const char *name, const char *cpu, uint64_t p0, uint64_t p1)
{
	bool fine = prepare(r, name, cpu);
	r->dev = device;
	if (ok(fine && place_maps(r) && load(r) && launch(r, BLOCKS, THREADS, p0, p1),
		    "%s (%s) runs", name, cpu))
		return true;
	finish(r);
	return false;
}

static uint32_t count(const char *text, const char *word)
{
	uint32_t n = 0;
	for (const char *s = text; (s = strstr(s, word)); s++)
		n++;
	return n;
}

/* Sum of lane numbers over all threads of one block of THREADS. */
static const uint64_t lane_sum = THREADS / LANES * (LANES * (LANES - 1) / 2);

static void test_counter(const char *cpu)
{
	struct run r;
	if (!run_probe(&r, "counter", cpu, 0, 0))
		return;
	struct map_image *counts = image_of(&r, "counts"), *bss = image_of(&r, ".bss"),
			 *small = image_of(&r, ".data");
	uint64_t sums[8] = { 0 };
	for (uint32_t k = 0; k < 64; k++)
		sums[k % 8] += ((uint64_t *)data_of(counts))[k];
	uint64_t n = BLOCKS * THREADS;
	is_int(sums[0], n, "v[0]++ counts every thread");
	is_int(sums[1], 4 * n, "v += field");
	is_int((int64_t)sums[2], -(int64_t)(BLOCKS * lane_sum), "v -= field");
	is_int(sums[3], (uint64_t)BLOCKS * THREADS / LANES * (6 * 1 + 26 * 3),
		"a conditional addend");
	is_int(sums[4], n, "v++ whose old value is used");
	is_int(sums[5], n, "every other old value is odd");
	is_int(sums[6], BLOCKS * THREADS / LANES * 20u, "a conditional addition");
	is_int(sums[7], n, "an atomic without result");
	uint64_t globals = 0;
	memcpy(&globals, data_of(bss), 8);
	int64_t other;
	memcpy(&other, data_of(bss) + 8, 8);
	ok((globals == n && other == -(int64_t)(BLOCKS * lane_sum)) ||
			((uint64_t)other == n && (int64_t)globals == -(int64_t)(BLOCKS * lane_sum)),
		"64-bit globals");
	is_int(*(uint32_t *)data_of(small), 7 + BLOCKS * lane_sum,
		"a 32-bit global with an initial value");
	is_int(count(r.fragment.body, "ld.volatile"), 0, "no load is left");
	is_int(r.fragment.local_bytes, 0, "no local memory");
	free(counts);
	free(bss);
	free(small);
	finish(&r);
}

static void test_histogram(const char *cpu)
{
	struct run r;
	if (!run_probe(&r, "histogram", cpu, 0, 0))
		return;
	struct map_image *hist = image_of(&r, "hist");
	uint64_t bins[32] = { 0 }, replica = map_replica_bytes(32, 8);
	for (uint32_t s = 0; s < hist->n_replicas; s++)
		for (uint32_t k = 0; k < 32; k++)
			bins[k] += *(uint64_t *)(data_of(hist) + s * replica + 8 * k);
	bool exact = true;
	for (uint32_t k = 0; k < 7; k++)
		exact &= bins[k] == (uint64_t)BLOCKS << k;
	ok(exact && bins[7] == BLOCKS, "each power of two has its threads");
	free(hist);
	finish(&r);
}

/* Slots of a hash image: how many are live; whether two hold one key; any that is at rest neither free nor live, locked, or out of its
 * home's reach. */
static uint32_t check_hash(struct map_image *image, bool *doubled, bool *busy,
	void (*each)(void *, const uint8_t *, const uint8_t *), void *arg)
{
	uint64_t slots = map_hash_slots(image->max_entries),
		 bytes = map_hash_slot_bytes(image->type, image->key_size, image->value_size);
	uint32_t live = 0;
	*doubled = *busy = false;
	for (uint64_t a = 0; a < slots; a++) {
		uint8_t *slot = data_of(image) + a * bytes;
		uint32_t state = ((uint32_t *)slot)[0];
		*busy |= (state & MAP_SLOT_LOCK) || (state & MAP_SLOT_STATE) == MAP_SLOT_BUSY;
		if ((state & MAP_SLOT_STATE) != MAP_SLOT_LIVE)
			continue;
		uint32_t hash = map_hash_key(slot + 8, image->key_size);
		uint64_t home = hash & (slots - 1), far = (a - home) & (slots - 1);
		*busy |= ((uint32_t *)slot)[1] != hash || far > *(uint32_t *)(data_of(image) + home * bytes) >> MAP_SLOT_REACH;
		for (uint64_t b = 0; b < a; b++) {
			uint8_t *twin = data_of(image) + b * bytes;
			*doubled |= (((uint32_t *)twin)[0] & MAP_SLOT_STATE) == MAP_SLOT_LIVE &&
				    !memcmp(twin + 8, slot + 8, image->key_size);
		}
		live++;
		if (each)
			each(arg, slot + 8, slot + 8 + map_round_up(image->key_size, 8));
	}
	return live;
}

static void sum_block(void *arg, const uint8_t *key, const uint8_t *value)
{
	uint64_t *sums = arg, v[2];
	uint32_t k[3], last;
	memcpy(k, key, sizeof(k));
	memcpy(v, value, sizeof(v));
	memcpy(&last, value + 16, 4);
	sums[0] += v[0];
	sums[1] += v[1];
	sums[2] += k[1] == 7 && k[2] == 0 && last == 5 && k[0] < 64 && v[0] % THREADS == 0;
}

static uint64_t global_at(struct map_image *bss, uint32_t index)
{
	uint64_t v;
	memcpy(&v, data_of(bss) + 8 * index, 8);
	return v;
}

static void test_blocks(const char *cpu)
{
	struct run r;
	if (!run_probe(&r, "blocks", cpu, 0, 0))
		return;
	bool doubled, busy;
	uint64_t sums[3] = { 0 };
	struct map_image *by_block = image_of(&r, "by_block"), *crowded = image_of(&r, "crowded"),
			 *bss = image_of(&r, ".bss");
	is_int(check_hash(by_block, &doubled, &busy, sum_block, sums), BLOCKS, "one key a block");
	ok(!doubled && !busy, "no key has two slots, none is left half written");
	is_int(sums[0], BLOCKS * THREADS, "every run is counted in its key's slot");
	is_int(sums[1], BLOCKS * lane_sum, "the second word too");
	is_int(sums[2], BLOCKS, "keys and values are whole");
	is_int(by_block->live, BLOCKS, "live keys");
	is_int(by_block->lost, 0, "nothing lost");
	is_int(check_hash(crowded, &doubled, &busy, NULL, NULL), 16,
		"a full map holds max_entries keys");
	ok(!doubled && !busy, "and each once");
	is_int(crowded->live, 16, "live keys of the full map");
	/* clang lays the three counters out in an order of its own */
	uint64_t total = global_at(bss, 0) + global_at(bss, 1) + global_at(bss, 2);
	is_int(total, BLOCKS * THREADS, "each update was made or refused, no insertion failed");
	bool found = false;
	for (uint32_t k = 0; k < 3; k++)
		found |= global_at(bss, k) == crowded->lost;
	ok(found && crowded->lost >= BLOCKS * THREADS / 3,
		"every refusal is counted as lost (%llu)", (unsigned long long)crowded->lost);
	free(by_block);
	free(crowded);
	free(bss);
	finish(&r);
}

/* All keys fit exactly: nobody may be told that the map is full. */
static void test_exact_fit(const char *cpu)
{
	struct run r;
	if (!run_probe(&r, "churn", cpu, 0, 0))
		return;
	bool doubled, busy;
	struct map_image *keys = image_of(&r, "keys"), *bss = image_of(&r, ".bss");
	uint32_t live = check_hash(keys, &doubled, &busy, NULL, NULL);
	ok(!doubled && !busy, "insertions and deletions leave each key one slot");
	is_int(keys->live, live, "the count of live keys is that of live slots");
	is_int(keys->lost, 0, "a map with room for every key refuses none");
	/* inserted - deleted = live, whichever of the five counters they are */
	bool balanced = false;
	for (uint32_t a = 0; a < 5; a++)
		for (uint32_t b = 0; b < 5; b++)
			balanced |= a != b && global_at(bss, a) - global_at(bss, b) == live;
	ok(balanced, "insertions minus deletions are what is there");
	uint64_t sum = 0;
	for (uint32_t k = 0; k < 5; k++)
		sum += global_at(bss, k);
	is_int(sum, BLOCKS * THREADS + BLOCKS * THREADS / 2, "every operation has an answer");
	free(keys);
	free(bss);
	finish(&r);
}

struct event {
	uint64_t who, twice, thrice;
	uint32_t lane, padding;
};

struct seen {
	uint64_t bad, lanes;
};

static void see(void *arg, const void *record, uint32_t bytes)
{
	struct seen *s = arg;
	struct event e;
	s->bad += bytes != sizeof(e);
	if (bytes != sizeof(e))
		return;
	memcpy(&e, record, sizeof(e));
	s->bad += e.twice != 2 * e.who || e.thrice != 3 * e.who || e.lane != (uint32_t)e.who % LANES;
	s->lanes |= 1ull << e.lane;
}

static void test_ring(const char *cpu)
{
	struct run r;
	struct seen seen = { 0 };
	uint64_t n = BLOCKS * THREADS, sum = 0, sent = 0, dropped = 0;
	/* enough for bins of any number of multiprocessors */
	int more = 7 + (int)(device_sms(device) * 2 * (32 << 10) * 2 / (n * 48));
	if (!run_probe(&r, "stream", cpu, 0, 0))
		return;
	for (int k = 0; k < more; k++)
		launch(&r, BLOCKS, THREADS, 0, 0);
	n *= (uint64_t)more + 1;
	struct map_image *ring = image_of(&r, "ring"), *bss = image_of(&r, ".bss");
	struct ringwalk all = ring_walk(ring, see, &seen);
	is_int(all.bad + seen.bad, 0, "every record is whole and committed");
	is_int(all.records + all.discarded + all.lost, n, "records and drops are all there is");
	ok(all.lost > 0 && all.closed, "the ring was full (%llu dropped)", (unsigned long long)all.lost);
	/* clang orders them by name or by use: the drops are known */
	for (uint32_t k = 0; k < 4; k++) {
		sum += global_at(bss, k);
		dropped += global_at(bss, k) == all.lost;
		sent += global_at(bss, k) == all.discarded;
	}
	is_int(sum, n, "the probe counts them all");
	ok(dropped && sent, "the probe's drops and discards are the ring's");
	is_int(seen.lanes, 0xffffffffull & ~(1ull << 4), "from every lane but the one that discards");

	/* The reader takes everything: the next launch finds room. */
	const struct ebpf_map *m = probe_map(&r.object, "ring");
	ring_empty(ring);
	device_write(device, r.images[m->id], ring, map_ring_data_at(ring->n_replicas));
	ok(launch(&r, 1, THREADS, 0, 0), "it runs again");
	free(ring);
	ring = image_of(&r, "ring");
	uint64_t lost = all.lost;
	all = ring_walk(ring, see, &seen);
	is_int(all.bad + seen.bad, 0, "records are whole in bins that were used before");
	is_int(all.records + all.discarded, THREADS, "nothing is lost");
	is_int(all.lost, lost, "nor said to be");
	free(ring);
	free(bss);
	finish(&r);
}

struct ways {
	uint64_t bad, n[8];
	uint8_t seen[BLOCKS * THREADS][6]; /* of each thread: records by way, and those of the loop by k */
};

static void see_way(void *arg, const void *record, uint32_t bytes)
{
	struct ways *w = arg;
	struct {
		uint64_t who;
		uint32_t way, n;
	} e;
	uint64_t word;
	memcpy(&e, record, sizeof(e));
	if (e.who == 0xabcd) { /* of varying size, from a map */
		w->bad += bytes % 8 || bytes > 264 || bytes < 16;
		w->n[6]++;
		return;
	}
	uint64_t thread = (e.who >> 32) * THREADS + (uint32_t)e.who;
	uint32_t lane = (uint32_t)e.who % LANES, slot = e.way == 5 ? 3 + e.n : e.way >= 3 ? e.way - 2 : 0;
	w->bad += thread >= BLOCKS * THREADS || !e.way || e.way > 5 || slot > 5;
	if (w->bad)
		return;
	w->bad += bytes != (e.way == 4 ? 336 : 16);
	w->bad += e.way != 5 && e.way != (lane & 1 ? 1 : lane % 3 ? 2 : e.way == 4 ? 4 : 3);
	w->bad += e.way == 5 && lane % 4 == e.n;
	for (uint32_t k = 0; e.way == 4 && bytes == 336 && k < 40; k++) {
		memcpy(&word, (const uint8_t *)record + 16 + 8 * k, 8);
		w->bad += word != e.who + k;
	}
	w->bad += w->seen[thread][slot]++; /* twice */
	w->n[e.way]++;
}

static void test_shapes(const char *cpu)
{
	struct run r;
	static struct ways ways;
	memset(&ways, 0, sizeof(ways));
	if (!run_probe(&r, "shapes", cpu, 0, 0))
		return;
	struct map_image *ring = image_of(&r, "ring"), *tiny = image_of(&r, "tiny"), *bss = image_of(&r, ".bss");
	struct ringwalk a = ring_walk(ring, see_way, &ways), b = ring_walk(tiny, see_way, &ways);
	is_int(a.bad + b.bad + ways.bad, 0, "records of all shapes are whole, committed, and there once");
	/* of 32 lanes 16 send way 1, 10 way 2, 6 ways 3 and 4; 9 in 12 of three send in the loop; 1 the impossible */
	uint64_t n = BLOCKS * THREADS, loop = n / 32 * (24 + 24 + 24), all = n + n / 32 * 6 + loop + n, never = n / 32;
	is_int(a.records + b.records + a.lost + b.lost, all + never, "records and drops are all there is");
	bool counted = false;
	uint64_t base = global_at(bss, 0) == 0xabcd ? 64 : 0; /* clang's order */
	for (uint64_t i = base; i < base + 3; i++)
		for (uint64_t k = base; k < base + 3; k++)
			counted |= i != k && global_at(bss, i) == a.records + b.records &&
				   global_at(bss, k) == a.lost + b.lost - never;
	ok(counted, "and what the probe was told");
	/* Which way finds the ring full depends on the order of warps, and whether it is on their number of multiprocessors. */
	bool usual = !getenv("EGPU_SOFTGPU");
	if (!ok(ways.n[1] && ways.n[2] && ways.n[3] && ways.n[4] && ways.n[6] &&
				(!usual || (a.lost && b.lost > never && ways.n[5])),
		    "every way was taken, and both rings were full"))
		printf("# lost %llu and %llu; ways %llu %llu %llu %llu %llu %llu\n", (unsigned long long)a.lost, (unsigned long long)b.lost,
			(unsigned long long)ways.n[1], (unsigned long long)ways.n[2], (unsigned long long)ways.n[3],
			(unsigned long long)ways.n[4], (unsigned long long)ways.n[5], (unsigned long long)ways.n[6]);
	free(ring);
	free(tiny);
	free(bss);
	finish(&r);
}

struct got_accesses {
	uint64_t bad, lanes, bytes, n[8], shapes[8][5];
};

/* As in the probe. */
static uint64_t probe_address(uint32_t way, uint32_t lane)
{
	uint64_t base = 0x00ff123456789a00ull - way * 0x1000;
	uint32_t hash = (lane + way) * 2654435761u;
	const uint64_t all[8] = { base + 4 * lane, base, base - 12 * lane, base + 4 * (lane % 16) + 5000 * (lane / 16),
		base + 8 * (lane % 8) - 100000 * (lane / 8 % 3), base + (hash >> 4), base - ((uint64_t)hash << 20),
		base - ((uint64_t)lane << 33) };
	return all[way];
}

static void see_access(void *arg, const void *record, uint32_t bytes)
{
	struct got_accesses *g = arg;
	struct egpu_access a;
	if (egpu_access_decode(record, bytes, &a)) {
		g->bad++;
		return;
	}
	uint32_t way = a.site % 16, block = a.site / 16;
	if (way > 7 || block >= BLOCKS) {
		g->bad++;
		return;
	}
	g->bad += a.bytes != (way == 1 ? 0 : 4) || a.op != (block & 2 && a.mask & 0xaaaaaaaa ? 2 : 1);
	g->bad += block & 2 && (a.mask & 0x55555555) && (a.mask & 0xaaaaaaaa); /* two paths in one record */
	for (uint32_t lane = 0; lane < 32; lane++) {
		if (!(a.mask >> lane & 1))
			continue;
		g->bad += ((block + way) >> (lane & 3) & 1) && block & 1;
		g->bad += a.address[lane] != probe_address(way, lane);
	}
	g->lanes += (uint32_t)__builtin_popcount(a.mask);
	g->bytes += bytes;
	g->n[way]++;
	if (block % 4 == 0)
		g->shapes[way][a.shape]++;
}

static void test_accesses(const char *cpu)
{
	struct run r;
	struct got_accesses got = { 0 };
	if (!run_probe(&r, "accesses", cpu, 0, 0))
		return;
	struct map_image *ring = image_of(&r, "ring"), *bss = image_of(&r, ".bss");
	struct ringwalk w = ring_walk(ring, see_access, &got);
	is_int(w.bad + w.lost, 0, "warp records are whole and none is lost");
	is_int(got.bad, 0, "every lane's address, bytes and operation come back");
	is_int(global_at(bss, 0) + global_at(bss, 1), got.lanes, "of every lane that took part");
	static const uint8_t shape[] = { EGPU_ACCESS_DENSE, EGPU_ACCESS_LINEAR, EGPU_ACCESS_LINEAR, EGPU_ACCESS_QUARTERS,
		EGPU_ACCESS_QUARTERS, EGPU_ACCESS_NEAR, EGPU_ACCESS_FAR, EGPU_ACCESS_FAR };
	uint64_t full = BLOCKS / 4 * (THREADS / LANES);
	for (uint32_t k = 0; k < 8; k++)
		is_int(got.shapes[k][shape[k]], full, "whole warps' pattern %u has the smallest shape", k);
	free(ring);
	free(bss);
	finish(&r);
}

static void test_filter(const char *cpu)
{
	struct run r;
	if (!run_probe(&r, "filter", cpu, 11, 3))
		return;
	struct map_image *bss = image_of(&r, ".bss");
	uint64_t n = BLOCKS * THREADS, sum = 0;
	for (uint32_t k = 0; k < 4; k++)
		sum += global_at(bss, k);
	uint64_t low = (uint64_t)BLOCKS * (THREADS * (THREADS - 1) / 2) +
		       (uint64_t)THREADS * (BLOCKS * (BLOCKS - 1) / 2);
	uint64_t weighed = (uint64_t)(-(int64_t)(n / 4) * 295);
	is_int(sum, n + 11 * n + low + weighed, "parameters, narrow fields and signed constants");
	is_int(r.fragment.n_params, 2, "two parameters are read");
	is_int(r.fragment.params[0].bytes * 16 + r.fragment.params[1].bytes, 8 * 16 + 4,
		"of 8 and 4 bytes");
	ok(launch(&r, BLOCKS, THREADS, 11, 4), "it runs with another parameter");
	free(bss);
	bss = image_of(&r, ".bss");
	uint64_t again = 0;
	for (uint32_t k = 0; k < 4; k++)
		again += global_at(bss, k);
	is_int(again, sum, "and the filter keeps it out");
	free(bss);
	finish(&r);
}

struct lines {
	uint32_t n, puts, bad;
};

static void see_line(void *arg, const void *record, uint32_t bytes)
{
	struct lines *l = arg;
	uint32_t head[2];
	uint64_t args[3];
	const char *format = (const char *)record + 32;
	memcpy(head, record, sizeof(head));
	memcpy(args, (const char *)record + 8, sizeof(args));
	if (bytes == 32 + 12 && !memcmp(format, "50%% of %%d", 12)) {
		l->bad += head[0] != 12 || head[1];
		l->puts++;
		return;
	}
	l->bad += bytes != head[0] + 32 || head[1] != 2 || args[0] != 2 || args[1] >= BLOCKS || args[2] != 0 ||
		  strcmp(format, "lane %d of block %d: 100%%") || head[0] != strlen(format) + 1;
	l->n++;
}

static void test_trace(const char *cpu)
{
	struct run r;
	struct lines lines = { 0 };
	if (!run_probe(&r, "trace", cpu, 0, 0))
		return;
	struct map_image *ring = image_of(&r, "egpu_trace"), *bss = image_of(&r, ".bss");
	struct ringwalk all = ring_walk(ring, see_line, &lines);
	is_int(lines.n, BLOCKS * THREADS / LANES, "a line from one lane of each warp");
	is_int(lines.puts, BLOCKS * THREADS / LANES, "and a constant one from another");
	is_int(lines.bad + all.bad + all.lost, 0, "with its format and arguments");
	is_int(global_at(bss, 0) + global_at(bss, 1) + global_at(bss, 2), 0,
		"time goes forward, and the processor is the SM");
	free(ring);
	free(bss);
	finish(&r);
}

static uint64_t mix(uint64_t a, uint64_t b)
{
	return a * 3 + b;
}

static void test_subprograms(const char *cpu)
{
	static const uint8_t bytes[16] = { 1, 2, 4, 8, 16, 32, 64, 128, 3, 6, 9, 12, 15, 18, 21,
		24 };
	struct run r;
	if (!run_probe(&r, "subprograms", cpu, 0, 0))
		return;
	struct map_image *bss = image_of(&r, ".bss");
	uint64_t want[4] = { 0 };
	for (uint32_t b = 0; b < BLOCKS; b++)
		for (uint32_t x = 0; x < THREADS; x++) {
			uint64_t lane = x % LANES, a = mix(lane, 5);
			want[0] += a;
			want[1] += mix(a, lane) ^ 0x55;
			want[2] += mix(lane, x);
			want[3] += bytes[lane & 15];
		}
	for (uint32_t k = 0; k < 4; k++)
		is_int(global_at(bss, k), want[k], "result %u of functions", k);
	free(bss);
	finish(&r);
}

static void test_helpers(const char *cpu)
{
	static const struct {
		uint32_t at;
		int64_t want;
		const char *what;
	} rows[] = {
		{ 0, 0, "array update" },
		{ 1, -17, "array update, NOEXIST" },
		{ 2, -7, "array update beyond the end" },
		{ 3, -22, "array update with unknown flags" },
		{ 4, -22, "array delete" },
		{ 5, 0, "array look-up beyond the end" },
		{ 6, 1 + 8 * 256 + 13 * 65536, "array value of 13 bytes" },
		{ 7, 0, "per-CPU update" },
		{ 8, 8, "per-CPU value" },
		{ 10, -2, "hash update, EXIST, of no key" },
		{ 11, 0, "hash update, NOEXIST" },
		{ 12, -17, "the same again" },
		{ 13, 0, "a key that differs in its fifth byte" },
		{ 14, -7, "a third key of two" },
		{ 15, 0, "hash delete" },
		{ 16, -2, "the same again" },
		{ 17, 0, "a deleted key is not found" },
		{ 18, -2, "nor updated with EXIST" },
		{ 19, 0, "its room is free" },
		{ 20, -7, "and taken" },
		{ 21, 0, "delete of the third key" },
		{ 22, 0, "a deleted key returns" },
		{ 23, 0x5678, "with a new value" },
		{ 24, -22, "hash update with unknown flags" },
		{ 30, 0, "a key of 72 and a value of 100 bytes" },
		{ 31, 100111005, "is found whole" },
		{ 32, 0, "a key that differs in its last word is not" },
		{ 33, -2, "nor deleted" },
		{ 34, 0, "the key is deleted" },
		{ 40, 4096, "ring size" },
		{ 41, 0, "output" },
		{ 42, 128, "bytes in the ring" },
		{ 43, 128 * 1000, "positions" },
		{ 44, -22, "output with unknown flags" },
		{ 45, 1, "a record larger than the ring" },
		{ 46, 1, "reserve with flags" },
		{ 47, 77, "the end is reached" },
	};
	struct run r;
	if (!prepare(&r, "helpers", cpu)) {
		ok(false, "helpers (%s) translates", cpu);
		return;
	}
	r.dev = device;
	if (ok(place_maps(&r) && load(&r) && launch(&r, 1, 1, 0, 0), "helpers (%s) runs", cpu)) {
		struct map_image *bss = image_of(&r, ".bss"), *odd = image_of(&r, "odd");
		/* clang may put `source`, of 104 bytes, before or after the results */
		uint32_t base = global_at(bss, 47) == 77 ? 0 : 13;
		for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
			is_int(global_at(bss, base + rows[k].at), rows[k].want, "%s", rows[k].what);
		is_int(odd->lost, 2, "each refusal for want of room is counted");
		is_int(odd->live, 2, "two keys are left");
		free(bss);
		free(odd);
	}
	finish(&r);
}

static void test_chance(const char *cpu)
{
	struct run r;
	if (!run_probe(&r, "chance", cpu, 0, 0))
		return;
	struct map_image *bytes = image_of(&r, "bytes"), *seen = image_of(&r, "seen");
	uint64_t draws = BLOCKS * THREADS * 4, low = draws, high = 0;
	double chi[2] = { 0 }, expected = (double)draws / 256;
	for (uint32_t k = 0; k < 512; k++) {
		uint64_t n = ((uint64_t *)data_of(bytes))[k];
		low = n < low ? n : low;
		high = n > high ? n : high;
		chi[k / 256] += ((double)n - expected) * ((double)n - expected) / expected;
	}
	/* 255 degrees of freedom: 400 is more than six deviations above the mean. */
	ok(chi[0] < 400 && chi[1] < 400, "bytes of random numbers are even (%.0f, %.0f)", chi[0], chi[1]);
	ok(low > 0 && high < 3 * draws / 256, "every value occurs (%llu to %llu times)", (unsigned long long)low,
		(unsigned long long)high);
	ok(seen->live + 8 >= draws && !seen->lost, "hardly any number occurs twice (%llu of %llu)",
		(unsigned long long)seen->live, (unsigned long long)draws);
	free(bytes);
	free(seen);
	finish(&r);
}

/* -- one lane for all --------------------------------------------------------- */

struct lanes_truth {
	uint64_t sums[8], adds[16][4], bits[16][4], hash[8][2], all;
	uint32_t pair[2];
	uint8_t bytes[4];
	uint16_t halves[2];
};

/* One thread of probes/lanes.bpf.c, by itself. */
static void lanes_thread(struct lanes_truth *t, uint32_t lane, uint32_t block)
{
	uint32_t key = lane >> 2, same = block & 7;
	uint64_t wide = (uint64_t)lane * 0x123456789abcdef;
	t->sums[0]++;
	t->sums[1] += block * 3;
	t->sums[2] += wide;
	t->sums[3] -= lane;
	t->sums[4] += lane % 3 == 1;
	t->sums[5] += lane % 3 == 1 ? lane : 0;
	for (uint32_t i = 0; i < (lane & 3); i++)
		t->sums[6] += i + 1;
	t->pair[0]--;
	t->pair[1] += lane;
	t->adds[key][0]++;
	t->adds[key][1] += wide;
	t->adds[same][2] += 5;
	t->adds[same][3] += lane;
	t->bits[key][0] |= 1ull << lane;
	t->bits[key][1] ^= wide;
	t->bits[key][2] ^= 0x5555;
	t->bits[same][3] |= wide ^ block;
	t->all &= ~(1ull << lane);
	t->bytes[1]++;
	t->bytes[3] = (uint8_t)(t->bytes[3] + lane);
	t->halves[0] = (uint16_t)(t->halves[0] - 3);
	t->halves[1] = (uint16_t)(t->halves[1] + lane);
	t->hash[same][0]++;
	t->hash[same][1] += wide;
}

static void sum_hash(void *arg, const uint8_t *key, const uint8_t *value)
{
	uint64_t(*hash)[2] = arg;
	uint32_t k;
	memcpy(&k, key, 4);
	if (k < 8)
		memcpy(hash[k], value, 16);
}

static void is_same(const void *got, const void *want, size_t bytes, const char *what)
{
	if (ok(!memcmp(got, want, bytes), "%s", what))
		return;
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t a = 0, b = 0;
		memcpy(&a, (const char *)got + i, bytes - i < 8 ? bytes - i : 8);
		memcpy(&b, (const char *)want + i, bytes - i < 8 ? bytes - i : 8);
		if (a != b)
			printf("# word %zu: got 0x%llx, want 0x%llx\n", i / 8, (unsigned long long)a, (unsigned long long)b);
	}
}

/* Whole warps, parts of warps, lanes that part, on every kind of target. */
static void test_lanes(const char *cpu, const char *version, const char *target, uint32_t blocks, uint32_t threads)
{
	static const char *const names[] = { "adds", "bits", ".bss", ".data.pair", ".data.mixed", "hash" };
	struct lanes_truth want = { .all = ~0ull, .pair = { 0, 5 }, .bytes = { 0, 7, 0, 9 }, .halves = { 0, 11 } };
	struct map_image *image[6];
	struct run r;
	bool doubled, busy, fine = prepare(&r, "lanes", cpu);
	uint64_t hash[8][2] = { 0 };
	r.dev = device;
	if (!ok(fine && place_maps(&r) && load_as(&r, version, target) && launch(&r, blocks, threads, 0, 0),
		    "lanes (%s) run as %s in %u blocks of %u", cpu, target, blocks, threads)) {
		finish(&r);
		return;
	}
	for (uint32_t b = 0; b < blocks; b++)
		for (uint32_t k = 0; k < threads; k++)
			lanes_thread(&want, k % LANES, b);
	for (size_t k = 0; k < 6; k++)
		image[k] = image_of(&r, names[k]);
	ok(is_folded(&r, probe_map(&r.object, "adds")) && is_folded(&r, probe_map(&r.object, ".bss")) &&
			is_folded(&r, probe_map(&r.object, ".data.pair")) && is_folded(&r, probe_map(&r.object, "bits")) && is_folded(&r, probe_map(&r.object, "hash")) &&
			!is_folded(&r, probe_map(&r.object, ".data.mixed")),
		"maps that are only folded into are found");
	check_hash(image[5], &doubled, &busy, sum_hash, hash);
	is_same(data_of(image[0]), want.adds, sizeof(want.adds), "sums in an array");
	is_same(data_of(image[1]), want.bits, sizeof(want.bits), "or and xor");
	is_same(data_of(image[2]), want.sums, sizeof(want.sums), "sums in globals");
	is_same(data_of(image[3]), want.pair, sizeof(want.pair), "two 32-bit sums in a word");
	is_same(data_of(image[4]), want.bytes, 4, "8-bit sums");
	is_same(data_of(image[4]) + 4, want.halves, 4, "16-bit sums");
	is_same(data_of(image[4]) + 8, &want.all, 8, "and");
	is_same(hash, want.hash, sizeof(hash), "sums in a hash map");
	for (size_t k = 0; k < 6; k++)
		free(image[k]);
	finish(&r);
}

static void test_targets(const char *cpu)
{
	const char *target = device_target(device);
	test_lanes(cpu, version_of(target), target, 132, 200);
	test_lanes(cpu, version_of(target), target, 1, 77);
	test_lanes(cpu, "6.3", "sm_75", 20, 100);
	test_lanes(cpu, "6.3", "sm_61", 20, 100);
	test_lanes(cpu, "6.0", "sm_70", 20, 100);
	if (!strcmp(cpu, "v3"))
		test_lanes(cpu, version_of(target), target, 10000, 33);
}

static void test_all(const char *cpu)
{
	test_targets(cpu);
	test_helpers(cpu);
	test_chance(cpu);
	test_counter(cpu);
	test_histogram(cpu);
	test_blocks(cpu);
	test_exact_fit(cpu);
	test_ring(cpu);
	test_shapes(cpu);
	test_accesses(cpu);
	test_filter(cpu);
	test_trace(cpu);
	test_subprograms(cpu);
}

int main(int argc, char **argv)
{
	const char *why, *library = argc > 1 ? argv[1] : NULL;
	static const char *const cpus[] = { "v3", "v4" };
	device = device_open_own(library, &why);
	if (!device) {
		tap_skip(why);
		return tap_done();
	}
	snprintf(dir, sizeof(dir), "/tmp/egpu-probes-XXXXXX");
	if (!mkdtemp(dir))
		return 1;
	for (int k = 0; k < 2; k++) {
		clang = probe_clang(k == 1);
		if (clang)
			test_all(cpus[k]);
		else
			tap_skip("no clang for this BPF version");
	}
	char command[128];
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	if (system(command))
		printf("# %s stays\n", dir);
	device_close(device);
	return tap_done();
}
