/* One map from the host's image and several device instances. */
#include "map_fixture.h"

struct instance {
	struct map_instance *inst;
	struct map_image *image;
	size_t bytes;
	uint8_t *data;
};

static struct instance instance_on(struct session *s, uint32_t map, uint32_t replicas, uint32_t device)
{
	struct instance i = { 0 };
	struct diag d = { 0 };
	if (map_instance_create(s, map, replicas, device, &i.inst, &i.image, &i.bytes, &d))
		printf("# %s\n", d.text);
	i.data = (uint8_t *)(i.image + 1);
	return i;
}

static struct instance instance(struct session *s, uint32_t map, uint32_t replicas)
{
	return instance_on(s, map, replicas, 0);
}

/* What device code does, on the host: finds or makes the key's slot. */
static uint64_t *device_slot(struct instance *i, const void *key)
{
	const struct map_image *m = i->image;
	uint64_t n = map_hash_slots(m->max_entries),
		 bytes = map_hash_slot_bytes(m->type, m->key_size, m->value_size);
	uint64_t home = map_hash_key(key, m->key_size) & (n - 1);
	uint32_t *reach = (uint32_t *)(void *)(i->data + home * bytes);
	for (uint64_t k = 0;; k++) {
		uint8_t *slot = i->data + ((home + k) & (n - 1)) * bytes;
		uint32_t *state = (uint32_t *)(void *)slot;
		bool live = (*state & MAP_SLOT_STATE) == MAP_SLOT_LIVE;
		if (live && memcmp(slot + 8, key, m->key_size))
			continue;
		if (*reach >> MAP_SLOT_REACH < k)
			*reach = (*reach & 0xff) | (uint32_t)k << MAP_SLOT_REACH;
		if (!live)
			i->image->live++;
		*state = (*state & ~(uint32_t)MAP_SLOT_STATE) | MAP_SLOT_LIVE;
		memcpy(slot + 8, key, m->key_size);
		return (uint64_t *)(void *)(slot + 8 + map_round_up(m->key_size, 8));
	}
}

static void device_delete(struct instance *i, const void *key)
{
	uint8_t *value = (uint8_t *)device_slot(i, key);
	*(uint32_t *)(void *)(value - map_round_up(i->image->key_size, 8) - 8) &= ~(uint32_t)MAP_SLOT_STATE;
	i->image->live--;
}

static void test_array(void)
{
	struct session *s;
	struct map *m;
	uint32_t id, key = 3, next;
	uint64_t v = 100;
	session_create(&s, NULL);
	is_int(fixture_map(s, BPF_MAP_TYPE_ARRAY, 4, 8, 10, 0, &id), 0, "an array is made");
	is_int(map_open(s, id, &m, NULL), 0, "and opened");
	is_int(map_value_bytes(m), 8, "its value size");
	is_int(map_lookup(m, &key, &v), 0, "a value is there from the start");
	is_int(v, 0, "and zero");
	v = 100;
	is_int(map_update(m, &key, &v, BPF_ANY), 0, "the host writes");
	is_int(map_update(m, &key, &v, BPF_NOEXIST), -EEXIST, "array elements always exist");
	is_int(map_update(m, &key, &v, 4), -EINVAL, "a flag unknown here");
	struct instance a = instance(s, id, 1), b = instance(s, id, 1);
	is_int(((uint64_t *)a.data)[3], 100, "an instance begins with the host's values");
	/* Of agents that are gone: nobody else writes their images. */
	((uint64_t *)b.data)[3] = 77;
	a.inst->ended = b.inst->ended = 1;
	v = 300;
	is_int(map_update(m, &key, &v, BPF_ANY), 0, "the host writes beside instances that have ended");
	is_int(((uint64_t *)a.data)[3], 300, "the first has it");
	is_int(((uint64_t *)b.data)[3], 300, "the second has it");
	map_lookup(m, &key, &v);
	is_int(v, 300, "and so has the map, whatever was added before");
	is_int(s ? session_data(s)->maps[id].writing & 1 : 1, 0, "no write is under way");
	v = 100;
	map_update(m, &key, &v, BPF_ANY);
	a.inst->ended = b.inst->ended = 0;
	((uint64_t *)a.data)[3] += 5;
	((uint64_t *)b.data)[3] += 7;
	map_lookup(m, &key, &v);
	is_int(v, 112, "counts of two devices add up");
	key = 4;
	map_instance_begin(b.inst);
	((uint64_t *)b.data)[4] = 9;
	map_instance_end(b.inst, 1);
	map_lookup(m, &key, &v);
	is_int(v, 9, "a later synchronisation is seen");
	struct instance c = instance(s, id, 1);
	map_instance_begin(c.inst);
	((uint64_t *)c.data)[4] = 1;
	map_instance_end(c.inst, 1);
	map_lookup(m, &key, &v);
	is_int(v, 10, "an instance made after the map was opened counts too");
	key = 10;
	is_int(map_lookup(m, &key, &v), -ENOENT, "past the end");
	is_int(map_delete(m, &key), -EINVAL, "array elements are not deleted");
	is_int(map_next_key(m, NULL, &next), 0, "the first key");
	is_int(next, 0, "is 0");
	key = 9;
	is_int(map_next_key(m, &key, &next), -ENOENT, "the last has no next");
	key = 99;
	ok(!map_next_key(m, &key, &next) && next == 0,
		"after a key that is not there comes the first");
	map_close(m);
	map_instance_close(a.inst);
	map_instance_close(b.inst);
	map_instance_close(c.inst);
	session_destroy(s);
}

static void test_small_and_odd_values(void)
{
	struct session *s;
	struct map *m;
	uint32_t id, key = 1;
	struct {
		uint32_t count, other, tail;
	} v = { 10, 20, 30 };
	session_create(&s, NULL);
	fixture_map(s, BPF_MAP_TYPE_ARRAY, 4, sizeof(v), 3, 0, &id);
	map_open(s, id, &m, NULL);
	map_update(m, &key, &v, BPF_ANY);
	struct instance a = instance(s, id, 1), b = instance(s, id, 1);
	uint32_t *pa = (uint32_t *)(void *)(a.data + 16), *pb = (uint32_t *)(void *)(b.data + 16);
	pa[0] -= 3;
	pb[0] += 1;
	pb[1] += 5;
	pa[2] = 31;
	map_lookup(m, &key, &v);
	ok(v.count == 8 && v.other == 25 && v.tail == 31, "32-bit fields of one word: %u %u %u",
		v.count, v.other, v.tail);
	map_close(m);
	map_instance_close(a.inst);
	map_instance_close(b.inst);
	session_destroy(s);
}

/* Enough look-ups that images are read in windows; then a synchronisation, which must drop them. */
static void test_dump(uint32_t type, uint32_t entries, uint32_t value_size, uint32_t replicas)
{
	struct session *s;
	struct map *m;
	uint32_t id;
	uint64_t *v = malloc(value_size);
	session_create(&s, NULL);
	fixture_map(s, type, 4, value_size, entries, 0, &id);
	map_open(s, id, &m, NULL);
	struct instance a = instance(s, id, replicas);
	uint64_t replica = type == BPF_MAP_TYPE_ARRAY ? 0 : map_replica_bytes(entries, value_size);
	uint32_t bad = 0;
	for (uint64_t round = 1; round <= 2; round++) {
		map_instance_begin(a.inst);
		for (uint32_t r = 0; r < replicas; r++)
			for (uint32_t i = 0; i < entries; i++)
				*(uint64_t *)(void *)(a.data + r * replica +
						      i * map_stride(value_size)) = round * i;
		map_instance_end(a.inst, round);
		for (uint32_t i = 0; i < entries; i++)
			bad += map_lookup_sum(m, &i, v) || v[0] != round * i * replicas;
	}
	is_int(bad, 0, "a dump of %u entries of %u bytes in %u replicas, twice", entries,
		value_size, replicas);
	map_close(m);
	map_instance_close(a.inst);
	session_destroy(s);
	free(v);
}

static void test_percpu(void)
{
	struct session *s;
	struct map *m;
	uint32_t id, key = 1, cpus = map_possible_cpus();
	uint64_t sum[2], *v = calloc(cpus, 16);
	session_create(&s, NULL);
	fixture_map(s, BPF_MAP_TYPE_PERCPU_ARRAY, 4, 12, 5, 0, &id);
	map_open(s, id, &m, NULL);
	is_int(map_value_bytes(m), 16 * cpus, "a value of each CPU, padded to 8");
	for (uint32_t c = 0; c < cpus; c++)
		v[2 * c] = 1000 + c;
	is_int(map_update(m, &key, v, BPF_ANY), 0, "the host writes all slots");
	uint32_t n = 3 * cpus + 1;
	struct instance a = instance(s, id, n);
	is_int(a.image->n_replicas, n, "a replica a multiprocessor");
	uint64_t replica = map_replica_bytes(5, 12);
	is_int(*(uint64_t *)(void *)(a.data + 16), 0, "replicas begin at zero");
	for (uint32_t r = 0; r < n; r++)
		*(uint64_t *)(void *)(a.data + r * replica + 16) = 1;
	memset(v, 0xee, 16 * cpus);
	map_lookup(m, &key, v);
	is_int(v[0], 1000 + 4, "replica r belongs to slot r mod CPUs");
	is_int(v[2 * (cpus - 1)], 1000 + cpus - 1 + 3 + (cpus == 1), "on every slot");
	uint64_t want = n;
	for (uint32_t c = 0; c < cpus; c++)
		want += 1000 + c;
	memset(sum, 0, sizeof(sum));
	is_int(map_lookup_sum(m, &key, sum), 0, "and can be summed");
	is_int(sum[0], want, "over all slots");
	map_close(m);
	map_instance_close(a.inst);
	session_destroy(s);
	free(v);
}

static int count_keys(struct map *m, uint64_t *sum_of_keys)
{
	uint32_t key, next;
	int n = 0;
	*sum_of_keys = 0;
	for (int err = map_next_key(m, NULL, &next); !err && n < 10000;
		err = map_next_key(m, &key, &next)) {
		key = next;
		*sum_of_keys += key;
		n++;
	}
	return n;
}

static void test_hash_host(void)
{
	struct session *s;
	struct map *m;
	uint32_t id, key;
	uint64_t v, keys;
	session_create(&s, NULL);
	fixture_map(s, BPF_MAP_TYPE_HASH, 4, 8, 100, 0, &id);
	map_open(s, id, &m, NULL);
	int bad = 0;
	for (key = 0; key < 100; key++) {
		v = key * 10;
		bad += map_update(m, &key, &v, BPF_NOEXIST) != 0;
	}
	is_int(bad, 0, "a hash takes as many keys as it says");
	is_int(map_update(m, &key, &v, BPF_ANY), -E2BIG, "and no more");
	key = 5;
	is_int(map_update(m, &key, &v, BPF_NOEXIST), -EEXIST, "a key that exists");
	v = 51;
	is_int(map_update(m, &key, &v, BPF_EXIST), 0, "can be changed");
	is_int(map_lookup(m, &key, &v), 0, "and found");
	is_int(v, 51, "with its value");
	is_int(map_delete(m, &key), 0, "and deleted");
	is_int(map_delete(m, &key), -ENOENT, "once");
	is_int(map_lookup(m, &key, &v), -ENOENT, "then it is gone");
	is_int(map_update(m, &key, &v, BPF_EXIST), -ENOENT, "and cannot be changed");
	is_int(count_keys(m, &keys), 99, "each key is visited once");
	is_int(keys, 99 * 100 / 2 - 5, "and all of them");
	is_int(map_update(m, &key, &v, BPF_ANY), 0, "room was made");
	for (int round = 0; round < 1000; round++) {
		key = 7;
		bad += map_delete(m, &key) != 0 || map_update(m, &key, &v, BPF_ANY) != 0;
	}
	is_int(bad, 0, "one key can be deleted and made for ever");
	map_close(m);
	session_destroy(s);
}

static void test_hash_merge(void)
{
	struct session *s;
	struct map *m;
	uint32_t id, key;
	uint64_t v, keys;
	session_create(&s, NULL);
	fixture_map(s, BPF_MAP_TYPE_HASH, 4, 8, 64, 0, &id);
	map_open(s, id, &m, NULL);
	for (key = 0; key < 10; key++) {
		v = 100;
		map_update(m, &key, &v, BPF_ANY);
	}
	key = 9;
	map_delete(m, &key);
	struct instance a = instance(s, id, 1), b = instance(s, id, 1);
	is_int(a.image->live, 9, "an instance knows how many keys it was given");
	key = 1;
	*device_slot(&a, &key) += 3;
	*device_slot(&b, &key) += 4;
	map_lookup(m, &key, &v);
	is_int(v, 107, "counts of one key add up");
	key = 20;
	*device_slot(&a, &key) = 1;
	map_instance_begin(a.inst);
	map_instance_end(a.inst, 1);
	map_lookup(m, &key, &v);
	is_int(v, 1, "a key of one device");
	key = 21;
	map_instance_begin(a.inst);
	*device_slot(&a, &key) = 1;
	map_instance_end(a.inst, 1);
	map_instance_begin(b.inst);
	*device_slot(&b, &key) = 2;
	key = 9;
	*device_slot(&b, &key) = 6;
	key = 22;
	*device_slot(&b, &key) = 7;
	key = 2;
	device_delete(&b, &key);
	map_instance_end(b.inst, 2);
	key = 21;
	map_lookup(m, &key, &v);
	is_int(v, 3, "a key of two devices");
	key = 9;
	is_int(map_lookup(m, &key, &v), 0, "a key the host deleted and a device made again");
	is_int(v, 6, "counts from zero");
	key = 2;
	map_lookup(m, &key, &v);
	is_int(v, 100, "a key that one of two devices deleted stays");
	is_int(count_keys(m, &keys), 13, "each key is visited once");
	is_int(keys, 45 + 20 + 21 + 22, "and all of them");
	map_instance_begin(a.inst);
	device_delete(&a, &key);
	map_instance_end(a.inst, 2);
	is_int(map_lookup(m, &key, &v), -ENOENT, "a key that both deleted is gone");
	is_int(count_keys(m, &keys), 12, "and not visited");
	a.image->lost = 5;
	b.image->lost = 6;
	is_int(map_lost(m), 11, "refused insertions are counted over the devices");
	map_close(m);
	map_instance_close(a.inst);
	map_instance_close(b.inst);
	session_destroy(s);
}

/* Keys that come and go, at random and in a full table, against a plain set. */
static void test_hash_churn(uint32_t type)
{
	enum { ENTRIES = 100, KEYS = 150, STEPS = 4000 };
	struct session *s;
	struct map *m;
	uint32_t id, seed = 7, n = 0;
	uint64_t keys;
	bool there[KEYS] = { false }, lru = map_is_lru(type);
	int bad = 0;
	session_create(&s, NULL);
	fixture_map(s, type, 4, 8, ENTRIES, 0, &id);
	map_open(s, id, &m, NULL);
	uint64_t *v = calloc(1, map_value_bytes(m) + 8), *got = calloc(1, map_value_bytes(m) + 8);
	for (int step = 0; step < STEPS; step++) {
		seed = seed * 1664525 + 1013904223;
		uint32_t key = (seed >> 8) % KEYS;
		v[0] = key * 3 + 1;
		bool full = n == ENTRIES;
		int err = seed >> 31 ? map_update(m, &key, v, BPF_ANY) : map_delete(m, &key);
		if (seed >> 31) {
			bad += err != (full && !there[key] && !lru ? -E2BIG : 0);
			n += !err && !there[key] && !full;
			there[key] |= !err;
		} else {
			bad += err != (there[key] ? 0 : -ENOENT);
			n -= there[key];
			there[key] = false;
		}
		/* One that made room is found by its absence. */
		for (uint32_t k = 0; lru && full && k < KEYS; k++)
			if (there[k] && k != key && map_lookup(m, &k, got) == -ENOENT)
				there[k] = false;
		bad += map_lookup(m, &key, got) != (there[key] ? 0 : -ENOENT) || (there[key] && got[0] != v[0]);
	}
	is_int(bad, 0, "type %u: %d insertions and deletions are answered as a set would", type, STEPS);
	is_int(count_keys(m, &keys), n, "type %u: all that is left is visited once", type);
	for (uint32_t k = 0; k < KEYS; k++)
		keys -= there[k] ? k : 0;
	is_int(keys, 0, "type %u: and nothing else", type);
	free(v);
	free(got);
	map_close(m);
	session_destroy(s);
}

/* Values of a per-CPU hash: those of the host as it wrote them, each multiprocessor's in the slot of its CPU. */
static void test_hash_per_cpu(void)
{
	enum { SMS = 5 };
	struct session *s;
	struct map *m;
	uint32_t id, key = 4, other = 9;
	session_create(&s, NULL);
	fixture_map(s, BPF_MAP_TYPE_PERCPU_HASH, 4, 12, 20, 0, &id);
	map_open(s, id, &m, NULL);
	uint32_t cpus = map_possible_cpus();
	uint64_t *v = calloc(1, map_value_bytes(m)), want = 0, sum[2];
	for (uint32_t c = 0; c < cpus; c++)
		want += v[2 * c] = c + 10;
	is_int(map_update(m, &key, v, BPF_ANY), 0, "a per-CPU hash is written");
	struct instance a = instance(s, id, SMS);
	is_int(a.image->n_replicas, SMS, "an instance has a replica for each multiprocessor");
	map_instance_begin(a.inst);
	device_slot(&a, &key);
	device_slot(&a, &other);
	uint64_t slots = map_hash_slots(20);
	for (uint64_t k = 0; k < slots; k++) {
		uint64_t bytes = map_hash_slot_bytes(BPF_MAP_TYPE_PERCPU_HASH, 4, 12);
		uint32_t *slot = (uint32_t *)(void *)(a.data + k * bytes);
		for (uint32_t r = 0; (slot[0] & MAP_SLOT_STATE) == MAP_SLOT_LIVE && r < SMS; r++)
			*(uint64_t *)(void *)(a.data + map_hash_value_at(BPF_MAP_TYPE_PERCPU_HASH, 4, 12, 20, k, r)) +=
				slot[2] == key ? 1000 << r : 1;
	}
	map_instance_end(a.inst, 1);
	is_int(map_lookup(m, &key, v), 0, "it is read");
	bool each = true;
	for (uint32_t c = 0; c < cpus; c++) {
		uint64_t slot = c + 10;
		for (uint32_t r = c; r < SMS; r += cpus)
			slot += 1000u << r;
		each &= v[2 * c] == slot;
	}
	ok(each, "multiprocessors add to the slot of their number mod the CPUs");
	map_lookup_sum(m, &key, sum);
	is_int(sum[0], want + 31000, "the sum is of all");
	map_lookup_sum(m, &other, sum);
	is_int(sum[0], SMS, "a key that only the device has");
	free(v);
	map_close(m);
	map_instance_close(a.inst);
	session_destroy(s);
}

/* A reader against a writer that changes all words together: every answer is one of its states. */
static void test_seqlock(void)
{
	struct session *s;
	struct map *m;
	uint32_t id, key = 0;
	enum { WORDS = 512 };
	session_create(&s, NULL);
	fixture_map(s, BPF_MAP_TYPE_ARRAY, 4, WORDS * 8, 1, 0, &id);
	int go[2];
	if (pipe(go))
		exit(99);
	pid_t writer = fork();
	if (!writer) {
		struct session *mine;
		session_open(session_path(s), &mine, NULL);
		struct instance a = instance(mine, id, 1);
		if (write(go[1], "x", 1) != 1)
			_exit(1);
		for (uint64_t n = 1;; n++) {
			map_instance_begin(a.inst);
			for (int i = 0; i < WORDS; i++)
				((uint64_t *)a.data)[i] = n;
			map_instance_end(a.inst, n);
			if (!(n & 7))
				usleep(50);
		}
	}
	char c;
	if (read(go[0], &c, 1) != 1)
		exit(99);
	map_open(s, id, &m, NULL);
	uint64_t *v = malloc(WORDS * 8), last = 0;
	int torn = 0, back = 0, failed = 0;
	for (int i = 0; i < 3000; i++) {
		int err = map_lookup(m, &key, v);
		failed += err != 0;
		for (int w = 1; w < WORDS && !err; w++)
			torn += v[w] != v[0];
		back += v[0] < last;
		last = v[0];
	}
	ok(!torn && !back && !failed && last,
		"no torn state, none older than one seen: %d %d %d, last %llu", torn, back, failed,
		(unsigned long long)last);
	kill(writer, SIGKILL);
	waitpid(writer, NULL, 0);
	/* As if it had been killed in the middle of a copy. */
	char path[400];
	snprintf(path, sizeof(path), "%s/map-%u.%d.0", session_path(s), id, (int)writer);
	int fd = open(path, O_RDWR);
	uint64_t odd = 999999999;
	ok(pwrite(fd, &odd, 8, offsetof(struct map_instance, generation)) == 8,
		"a writer that died in the middle");
	is_int(map_lookup(m, &key, v), 0, "leaves something to read");
	close(fd);
	map_close(m);
	free(v);
	session_destroy(s);
}

static void test_mapped_globals(void)
{
	struct session *s;
	struct map *m;
	uint32_t id, key = 0;
	char path[400];
	uint64_t v[3] = { 1, 2, 3 };
	session_create(&s, NULL);
	struct ebpf_map def = {
		.name = ".data",
		.type = BPF_MAP_TYPE_ARRAY,
		.key_size = 4,
		.value_size = 24,
		.max_entries = 1,
		.flags = BPF_F_MMAPABLE,
		.values = (uint8_t *)v,
	};
	is_int(session_add_map(s, &def, &id, NULL), 0, "an array with values");
	map_open(s, id, &m, NULL);
	struct instance a = instance(s, id, 1);
	snprintf(path, sizeof(path), "%s/map-%u", session_path(s), id);
	int fd = open(path, O_RDWR);
	uint64_t now[3] = { 0 };
	ok(pread(fd, now, 24, 0) == 24 && now[2] == 3,
		"map-ID holds them at offset 0, where a mapping shows them");
	((uint64_t *)a.data)[0] += 10;
	now[1] = 50; /* through its mapping, the host may still write */
	ok(pwrite(fd, now, 24, 0) == 24, "the host writes");
	map_lookup(m, &key, v);
	ok(v[0] == 11 && v[1] == 50 && v[2] == 3, "both changes are seen: %d %d %d", (int)v[0],
		(int)v[1], (int)v[2]);
	close(fd);
	map_close(m);
	map_instance_close(a.inst);
	session_destroy(s);
}

static void test_shapes(void)
{
	struct session *s;
	uint32_t id;
	struct diag d = { 0 };
	session_create(&s, NULL);
	struct {
		uint32_t type, key, value, entries;
		const char *what;
	} bad[] = {
		{ BPF_MAP_TYPE_ARRAY, 8, 8, 1, "array key of 8" },
		{ BPF_MAP_TYPE_ARRAY, 4, 0, 1, "no value" },
		{ BPF_MAP_TYPE_ARRAY, 4, 8, 0, "no entries" },
		{ BPF_MAP_TYPE_ARRAY, 4, UINT32_MAX, UINT32_MAX, "everything at its largest" },
		{ BPF_MAP_TYPE_HASH, 4, 1 << 28, UINT32_MAX, "a hash of exabytes" },
		{ BPF_MAP_TYPE_HASH, 0, 8, 1, "a hash without key" },
		{ BPF_MAP_TYPE_HASH, 513, 8, 1, "a hash key that is too long" },
		{ BPF_MAP_TYPE_PERCPU_ARRAY, 4, 1 << 28, 1 << 10, "per-CPU of terabytes" },
		{ BPF_MAP_TYPE_RINGBUF, 0, 0, 4095, "a ring of an odd size" },
		{ BPF_MAP_TYPE_RINGBUF, 0, 0, 2048, "a ring that is too small" },
		{ BPF_MAP_TYPE_RINGBUF, 0, 0, 0, "a ring of nothing" },
		{ BPF_MAP_TYPE_RINGBUF, 4, 0, 4096, "a ring with a key" },
		{ BPF_MAP_TYPE_PROG_ARRAY, 4, 4, 1, "another type" },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		is_int(fixture_map(
			       s, bad[i].type, bad[i].key, bad[i].value, bad[i].entries, 0, &id),
			-EINVAL, "%s", bad[i].what);
	struct ebpf_map def = { .name = "cpus",
		.type = BPF_MAP_TYPE_CPUMAP,
		.key_size = 8,
		.value_size = 8,
		.max_entries = 1 };
	session_add_map(s, &def, &id, &d);
	ok(strstr(d.text, "cpus") && strstr(d.text, "RINGBUF"),
		"the message lists what there is: %s", d.text);
	is_int(map_image_bytes(BPF_MAP_TYPE_HASH, 4, 8, 5, 1), 128 + 16 * 24,
		"a hash of 5 has 16 slots of 24 bytes");
	is_int(map_image_bytes(BPF_MAP_TYPE_PERCPU_ARRAY, 4, 8, 1, 132), 128 + 132 * 128,
		"replicas lie on their own cache lines");
	int err = 0, n = -1;
	for (; !err && n < 200; n++)
		err = fixture_map(s, BPF_MAP_TYPE_ARRAY, 4, 8, 1, 0, &id);
	ok(err == -ENOSPC && n == 64, "the table fills: %d", n);
	session_destroy(s);
}

static void test_devices(void)
{
	struct session *s;
	struct map *all, *one;
	uint32_t id, key = 1, devices[4];
	uint64_t v = 10;
	session_create(&s, NULL);
	fixture_map(s, BPF_MAP_TYPE_ARRAY, 4, 8, 2, 0, &id);
	map_open(s, id, &all, NULL);
	is_int(map_devices(all, devices, 4), 0, "no device has the map");
	map_update(all, &key, &v, BPF_ANY);
	struct instance a = instance_on(s, id, 1, 3), b = instance_on(s, id, 1, 0),
			c = instance_on(s, id, 1, 3);
	((uint64_t *)a.data)[1] += 5;
	((uint64_t *)b.data)[1] += 7;
	((uint64_t *)c.data)[1] += 100;
	is_int(map_devices(all, devices, 4), 2, "two devices have it");
	ok(devices[0] == 0 && devices[1] == 3, "in order");
	is_int(map_devices(all, devices, 1), 1, "as many as there is room for");
	map_lookup(all, &key, &v);
	is_int(v, 10 + 5 + 7 + 100, "together");
	map_open_device(s, id, 3, &one, NULL);
	map_lookup(one, &key, &v);
	is_int(v, 10 + 5 + 100, "both images of one device");
	map_close(one);
	map_open_device(s, id, 0, &one, NULL);
	map_lookup(one, &key, &v);
	is_int(v, 10 + 7, "the other device");
	map_close(one);
	map_open_device(s, id, 1, &one, NULL);
	map_lookup(one, &key, &v);
	is_int(v, 10, "a device without it: the host's value");
	map_close(one);
	map_close(all);
	map_instance_close(a.inst);
	map_instance_close(b.inst);
	map_instance_close(c.inst);
	session_destroy(s);
}

int main(void)
{
	fixture_make();
	test_array();
	test_devices();
	test_small_and_odd_values();
	test_percpu();
	test_dump(BPF_MAP_TYPE_ARRAY, 20000, 8, 1);
	test_dump(BPF_MAP_TYPE_ARRAY, 9000, 8192, 1); /* more than is read whole */
	test_dump(BPF_MAP_TYPE_PERCPU_ARRAY, 2000, 24, 40);
	test_dump(BPF_MAP_TYPE_PERCPU_ARRAY, 40, 60000, 40);
	test_hash_host();
	test_hash_merge();
	test_hash_churn(BPF_MAP_TYPE_HASH);
	test_hash_churn(BPF_MAP_TYPE_LRU_HASH);
	test_hash_churn(BPF_MAP_TYPE_PERCPU_HASH);
	test_hash_churn(BPF_MAP_TYPE_LRU_PERCPU_HASH);
	test_hash_per_cpu();
	test_seqlock();
	test_mapped_globals();
	test_shapes();
	is_int(fixture_end(), 0, "nothing is left behind");
	return tap_done();
}
