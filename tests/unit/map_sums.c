/* Arrays and hashes that programs only fold into: devices keep a replica on each multiprocessor, and the reader folds them; once a program does
 * more, they do not, and when they do already, it comes too late. Each replica begins as the host's value. */
#include "map/internal.h"
#include "map_fixture.h"

enum { SMS = 5 };

static const struct ebpf_map_use adds = { .folded = true, .fold = { EBPF_FOLD_ADD64, EBPF_FOLD_ADD64 } }, reads = { .other = true },
				 looks = { 0 }, deletes = { .inserted = true, .replaced = true }, halves = { .folded = true, .fold = { 0, 0, EBPF_FOLD_ADD32, EBPF_FOLD_ADD32 } },
				 other_width = { .folded = true, .fold = { EBPF_FOLD_ADD32 } };

struct instance {
	struct map_instance *inst;
	struct map_image *image;
	size_t bytes;
};

static struct instance instance(struct session *s, uint32_t id)
{
	struct instance i = { 0 };
	is_int(map_instance_create(s, id, SMS, 0, &i.inst, &i.image, &i.bytes, NULL), 0, "an instance");
	return i;
}

static uint64_t *word(const struct instance *i, uint32_t replica, uint32_t index, uint32_t at)
{
	uint64_t one = map_replica_bytes(i->image->max_entries, i->image->value_size),
		 stride = map_stride(i->image->value_size);
	return (uint64_t *)((char *)i->image + MAP_IMAGE_HEADER + replica * one + index * stride) + at;
}

static void test_sums(void)
{
	struct session *s;
	struct map *m;
	struct diag d = { 0 };
	uint32_t id, key = 1;
	uint64_t v[2] = { 100, 7 };
	session_create(&s, NULL);
	fixture_map(s, BPF_MAP_TYPE_ARRAY, 4, 16, 3, 0, &id);
	map_open(s, id, &m, NULL);
	is_int(map_update(m, &key, v, 0), 0, "an initial value");
	is_int(session_map_use(s, id, &looks, &d), 0, "a program that only looks up");
	is_int(session_map_use(s, id, &adds, &d), 0, "one that adds");
	is_int(session_map_use(s, id, &halves, &d), 0, "one that adds to another word, in halves");
	struct instance a = instance(s, id), b = instance(s, id);
	is_int(a.image->n_replicas, SMS, "a replica on each multiprocessor");
	ok(*word(&a, 0, 1, 0) == 100 && *word(&a, SMS - 1, 1, 0) == 100, "each begins with the initial value");
	for (uint32_t r = 0; r < SMS; r++) {
		*word(&a, r, 1, 0) += 1ull << (10 * r);
		*word(&b, r, 1, 0) += 3;
		*word(&a, r, 1, 1) += 0xffffffff00000000u; /* -1 in the upper half */
		*(uint32_t *)word(&a, r, 1, 1) += 0x80000000u;
	}
	*word(&a, SMS - 1, 0, 0) = 5;
	is_int(map_lookup(m, &key, v), 0, "it is read");
	is_int(v[0], 100 + 1 + (1 << 10) + (1 << 20) + (1 << 30) + (1ull << 40) + SMS * 3, "as the sum of all");
	is_int((uint32_t)v[1], 0x80000007u, "a 32-bit sum wraps");
	is_int((int32_t)(v[1] >> 32), -SMS, "and does not carry into its neighbour");
	key = 0;
	map_lookup(m, &key, v);
	ok(v[0] == 5 && v[1] == 0, "its neighbour");
	is_int(session_map_use(s, id, &adds, &d), 0, "another program that adds comes at any time");
	is_int(session_map_use(s, id, &reads, &d), -EBUSY, "one that reads comes too late");
	ok(strstr(d.text, "before the first launch"), "and is told: %s", d.text);
	is_int(session_map_use(s, id, &other_width, &d), -EBUSY, "so does one that adds to the word in another width");
	is_int(session_map_use(s, id, &adds, &d), 0, "which changes nothing for the others");
	map_lookup(m, &key, v);
	is_int(v[0], 5, "nor for the reader");
	map_close(m);
	map_instance_close(a.inst);
	map_instance_close(b.inst);
	session_destroy(s);
}

static uint64_t both(uint32_t low, uint32_t high)
{
	return (uint64_t)high << 32 | low;
}

/* A value of each fold, each with an initial value that matters; changed on replicas and on two devices. */
static void test_folds(void)
{
	static const struct ebpf_map_use use = { .folded = true,
		.fold = { EBPF_FOLD_MIN_U64, EBPF_FOLD_MIN_U64, EBPF_FOLD_MAX_S64, EBPF_FOLD_MAX_S64, EBPF_FOLD_MIN_S32, EBPF_FOLD_MAX_U32, EBPF_FOLD_OR,
			EBPF_FOLD_AND, EBPF_FOLD_XOR, EBPF_FOLD_ADD32, EBPF_FOLD_MIN_U32, EBPF_FOLD_MAX_S32 } };
	struct session *s;
	struct map *m;
	struct diag d = { 0 };
	uint32_t id, key = 0;
	uint64_t v[6] = { 1000, (uint64_t)-7, both(5, 5), both(1, 0xff), both(3, 7), both(50, (uint32_t)-50) }, got[6];
	session_create(&s, NULL);
	fixture_map(s, BPF_MAP_TYPE_ARRAY, 4, sizeof(v), 1, 0, &id);
	map_open(s, id, &m, NULL);
	map_update(m, &key, v, 0);
	is_int(session_map_use(s, id, &use, &d), 0, "a program that folds in many ways");
	struct instance a = instance(s, id), b = instance(s, id);
	is_int(a.image->n_replicas, SMS, "a replica on each multiprocessor");
	map_lookup(m, &key, got);
	ok(!memcmp(got, v, sizeof(v)), "nothing changed: the initial value");
	*word(&a, 1, 0, 0) = 900;
	*word(&b, 2, 0, 0) = 901;
	*word(&a, 4, 0, 1) = (uint64_t)-3;
	*word(&b, 0, 0, 2) = both((uint32_t)-1, 6);
	*word(&a, 3, 0, 2) = both(4, 0x80000000u);
	*word(&a, 0, 0, 3) = both(1 | 4, 0xf0);
	*word(&b, 1, 0, 3) = both(1 | 8, 0x3f);
	*word(&a, 2, 0, 4) = both(3 ^ 16, 7 + 10);
	*word(&b, 2, 0, 4) = both(3 ^ 17, 7 - 1);
	*word(&b, 4, 0, 5) = both(49, (uint32_t)-49);
	map_lookup(m, &key, got);
	is_int(got[0], 900, "a least value");
	is_int((int64_t)got[1], -3, "a greatest, with a sign");
	ok(got[2] == both((uint32_t)-1, 0x80000000u), "both in one word");
	ok(got[3] == both(1 | 4 | 8, 0x30), "bits");
	ok(got[4] == both(3 ^ 16 ^ 17, 7 + 10 - 1), "bits that flip, beside a sum");
	ok(got[5] == both(49, (uint32_t)-49), "32-bit ones");
	map_instance_close(a.inst);
	map_instance_close(b.inst);
	map_close(m);
	session_destroy(s);
}

/* A key's value in a slot, and what multiprocessors have beside it. */
static void test_hash(void)
{
	static const struct ebpf_map_use use = { .folded = true,
		.inserted = true,
		.fold = { EBPF_FOLD_ADD64, EBPF_FOLD_ADD64, EBPF_FOLD_MAX_U32, EBPF_FOLD_OR } };
	static const struct ebpf_map_use least = { .folded = true, .fold = { 0, 0, 0, 0, EBPF_FOLD_MIN_U64, EBPF_FOLD_MIN_U64 } };
	struct session *s;
	struct map *m;
	struct diag d = { 0 };
	uint32_t id, key_bytes = 8;
	uint64_t key = 77, other = 78, v[3] = { 100, both(5, 1), 0 }, got[3], next;
	session_create(&s, NULL);
	fixture_map(s, BPF_MAP_TYPE_HASH, key_bytes, sizeof(v), 3, 0, &id);
	map_open(s, id, &m, NULL);
	is_int(map_update(m, &key, v, 0), 0, "a key of the host's");
	is_int(session_map_use(s, id, &use, &d), 0, "a program that looks up, inserts and folds");
	struct instance a = instance(s, id), b = instance(s, id);
	is_int(a.image->n_replicas, SMS, "values on each multiprocessor");
	uint8_t *data = (uint8_t *)(a.image + 1);
	uint64_t slot_bytes = map_hash_slot_bytes(MAP_HASH, key_bytes, sizeof(v)), slots = map_hash_slots(3), at = slots, ones = 0;
	for (uint64_t k = 0; k < slots; k++) {
		uint32_t state;
		uint64_t word;
		memcpy(&state, data + k * slot_bytes, 4);
		memcpy(&word, data + k * slot_bytes + 8, 8);
		at = (state & MAP_SLOT_STATE) == MAP_SLOT_LIVE ? k : at;
		ones += word == UINT64_MAX;
	}
	ok(at < slots && ones == slots - 1, "keys of empty slots are all ones");
	for (uint32_t r = 0; r < SMS; r++) {
		uint64_t *beside = (uint64_t *)(void *)(data + map_hash_replicas_at(key_bytes, sizeof(v), 3) + r * map_hash_replica_bytes(sizeof(v), 3) +
							at * sizeof(v));
		beside[0] = 1 + r;
		beside[1] = both(r == 3 ? 9 : r, 1u << r);
	}
	((uint64_t *)(void *)((uint8_t *)(b.image + 1) + at * slot_bytes + 16))[0] += 1000;
	is_int(map_lookup(m, &key, got), 0, "it is read");
	is_int(got[0], 100 + 15 + 1000, "sums of multiprocessors and devices");
	ok(got[1] == both(9, 0x1f), "a greatest value, and bits");
	ok(!map_next_key(m, NULL, &next) && next == 77 && map_next_key(m, &next, &next) == -ENOENT, "it is the only key");
	is_int(session_map_use(s, id, &least, &d), -EBUSY, "a least value does not begin with zero");
	is_int(session_map_use(s, id, &deletes, &d), -EBUSY, "nor may keys be deleted");
	is_int(session_map_use(s, id, &reads, &d), -EBUSY, "nor values be read");
	is_int(session_map_use(s, id, &use, &d), 0, "one that folds may come");
	__atomic_store_n(&a.inst->ended, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&b.inst->ended, 1, __ATOMIC_RELEASE);
	is_int(map_update(m, &key, v, 0), 0, "the host writes");
	map_lookup(m, &key, got);
	ok(got[0] == 100 && got[1] == both(5, 1), "what multiprocessors had is over");
	is_int(map_delete(m, &key), 0, "and deletes");
	is_int(map_update(m, &other, v, 0), 0, "and makes another key");
	map_lookup(m, &other, got);
	is_int(got[0], 100, "which begins with what is written");
	map_close(m);
	map_instance_close(a.inst);
	map_instance_close(b.inst);
	session_destroy(s);
}

/* Copies of per-CPU values begin with zero, which is no bits that all have and no least value: one that nobody touched says nothing. */
static void test_per_cpu(uint32_t type)
{
	static const struct ebpf_map_use use = { .folded = true,
		.fold = { EBPF_FOLD_MIN_U64, EBPF_FOLD_MIN_U64, EBPF_FOLD_AND, EBPF_FOLD_MAX_S32 } };
	struct session *s;
	struct map *m;
	struct diag d = { 0 };
	uint32_t id, key = 0, cpus = (uint32_t)map_possible_cpus();
	uint64_t v[2] = { UINT64_MAX, both(0xff, (uint32_t)-5) }, sum[2];
	uint64_t(*all)[2] = calloc(cpus, sizeof(v)), (*got)[2] = calloc(cpus, sizeof(v));
	session_create(&s, NULL);
	fixture_map(s, type, 4, sizeof(v), 1, 0, &id);
	map_open(s, id, &m, NULL);
	is_int(session_map_use(s, id, &use, &d), 0, "type %u: a program that folds in ways that do not begin with zero", type);
	for (uint32_t c = 0; c < cpus; c++)
		memcpy(all[c], v, sizeof(v));
	is_int(map_update(m, &key, all, 0), 0, "the host writes a value of each CPU");
	is_int(map_lookup(m, &key, got), 0, "and reads");
	ok(!memcmp(got, all, cpus * sizeof(v)), "what it wrote");
	map_lookup_sum(m, &key, sum);
	ok(!memcmp(sum, v, sizeof(v)), "and one value of them");
	struct instance a = instance(s, id);
	is_int(a.image->n_replicas, SMS, "a copy on each multiprocessor");
	map_lookup(m, &key, got);
	ok(!memcmp(got, all, cpus * sizeof(v)), "which changes nothing until something is in it");
	uint8_t *copy = (uint8_t *)(a.image + 1) + (type == BPF_MAP_TYPE_PERCPU_HASH ? map_hash_slots_bytes(4, 1) : 0);
	uint64_t one = type == BPF_MAP_TYPE_PERCPU_HASH ? map_hash_replica_bytes(sizeof(v), 1) : map_replica_bytes(1, sizeof(v));
	for (uint32_t k = 0; type == BPF_MAP_TYPE_PERCPU_HASH && k < map_hash_slots(1); k++)
		memcpy(copy + one + k * sizeof(v), (uint64_t[2]){ 7, both(0x3c, (uint32_t)-9) }, sizeof(v));
	memcpy(copy + one, (uint64_t[2]){ 7, both(0x3c, (uint32_t)-9) }, sizeof(v));
	map_instance_end(a.inst, 1);
	map_lookup(m, &key, got);
	uint32_t c = 1 % cpus;
	ok(got[c][0] == 7 && got[c][1] == both(0x3c, (uint32_t)-5), "then it is folded with what the host wrote");
	ok(cpus == 1 || !memcmp(got[0], v, sizeof(v)), "and its neighbour is as it was");
	map_close(m);
	map_instance_close(a.inst);
	session_destroy(s);
	free(all);
	free(got);
}

static void one_replica(uint32_t type, uint32_t entries, const struct ebpf_map_use *first,
	const struct ebpf_map_use *second, const char *what)
{
	struct session *s;
	struct diag d = { 0 };
	uint32_t id;
	session_create(&s, NULL);
	fixture_map(s, type, 4, 8, entries, 0, &id);
	is_int(session_map_use(s, id, first, &d), 0, "%s", what);
	if (second)
		is_int(session_map_use(s, id, second, &d), 0, "then another");
	struct instance a = instance(s, id);
	is_int(a.image->n_replicas, 1, "has one replica");
	is_int(session_map_use(s, id, &reads, &d), 0, "and who reads it may come later");
	map_instance_close(a.inst);
	session_destroy(s);
}

int main(void)
{
	fixture_make();
	test_sums();
	test_folds();
	test_hash();
	test_per_cpu(BPF_MAP_TYPE_PERCPU_ARRAY);
	test_per_cpu(BPF_MAP_TYPE_PERCPU_HASH);
	one_replica(BPF_MAP_TYPE_ARRAY, 4, &adds, &reads, "a map that a second program reads");
	one_replica(BPF_MAP_TYPE_ARRAY, 4, &reads, &adds, "a map that the first program reads");
	one_replica(BPF_MAP_TYPE_ARRAY, 4, &adds, &other_width, "a word that is added to in two widths");
	one_replica(BPF_MAP_TYPE_ARRAY, 4, &looks, NULL, "a map that nobody adds to");
	one_replica(BPF_MAP_TYPE_HASH, 4, &adds, &deletes, "a hash map that keys are deleted from");
	one_replica(BPF_MAP_TYPE_LRU_HASH, 4, &adds, NULL, "an LRU hash map");
	one_replica(BPF_MAP_TYPE_HASH, MAP_REPLICAS_BYTES / 8 / SMS / 2 + 16, &adds, NULL, "a hash map whose replicas would be too large");
	one_replica(BPF_MAP_TYPE_ARRAY, MAP_REPLICAS_BYTES / 8 / SMS + 16, &adds, NULL, "a map whose replicas would be too large");
	is_int(fixture_end(), 0, "nothing is left behind");
	return tap_done();
}
