/* The black box as the report tells it: values by their types, launches that ended left out, and anything at all in it. */
#include <stdlib.h>
#include <unistd.h>

#include "cli/fault.h"
#include "tap.h"

static uint64_t state = 88172645463325252u;

static uint64_t random_word(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static struct session *s;
static struct session_blackbox *box;
static struct session_kernel *kernel;

static void put(struct session_launch *l, uint32_t at, const void *value, uint32_t bytes)
{
	memcpy(l->params + at, value, bytes);
	l->param_bytes = at + bytes > l->param_bytes ? at + bytes : l->param_bytes;
}

static void says(const char *want, const char *what)
{
	struct snapshot *snap = snap_take(s);
	struct buf text = { 0 };
	fault_text(s, snap, &text);
	ok(text.data && strstr(text.data, want), "%s", what);
	if (!text.data || !strstr(text.data, want))
		printf("# wanted: %s\n# got: %s\n", want, text.data ? text.data : "nothing");
	buf_free(&text);
	snap_free(snap);
}

static void values(void)
{
	struct session_launch *l = &box->last[0];
	uint64_t pointer = 0x7f1200000000, small = 12;
	uint8_t bytes[24] = { 1, 2, 0xff };
	float f = 7.5f;
	int16_t negative = -8;
	double d = -9.25;
	kernel->params = session_add_text(s, "u64 b8[24]@8 f32 s16 f64@16 u64 b8[200]@4 u8");
	put(l, 0, &pointer, 8);
	put(l, 8, bytes, 24);
	put(l, 32, &f, 4);
	put(l, 36, &negative, 2);
	put(l, 48, &d, 8);
	put(l, 56, &small, 8);
	box->launches = box->launches_then = 2;
	box->fault = 700;
	strcpy(box->call, "cuSomething");
	l->number = 1;
	l->grid[0] = 5;
	says("illegal address (error 700), seen by cuSomething\n    launch 1, not seen to end: k, 5 x 0 x 0 blocks of 0 x 0 x 0 threads, stream 0\n"
	     "      arguments: 0x7f1200000000, {01 02 ff 00 00 00 00 00 00 00 00 00 00 00 00 00 ..}, 7.5, 0xfff8, -9.25, 12, ..\n",
		"values by their types, as far as they were kept");
	kernel->params = session_add_text(s, SESSION_NO_PARAMS);
	says("stream 0\n", "a kernel without parameters");
	l->graph_kernels = 3;
	l->thread = 77;
	says("a graph of 3 kernels, first k, stream 0 of thread 77\n", "a graph");
	l->links = 1;
	says("thread 77, probed by on_load\n", "and what ran in it");
	l->graph_kernels = 0;
	box->last[1] = *l;
	box->last[1].number = 2;
	l->ended = 1;
	says("cuSomething\n    launch 2,", "one that has ended is not told");
	box->maps_behind = 2;
	says("maps lack all or part of 2 probed launches: they had not been copied yet", "maps that were never copied");
	box->fault_ns = 5000000;
	box->maps_ns = 3500000;
	says("they were copied 1.5 ms before that", "and old ones");
}

static void anything(void)
{
	static const char *const types[] = { "u64", "u64 ", "b8[99999999999]@0", "u128", "b8[3]@3 u64", "f7", "%s%n", "u4294967295", "b8[65536]@65536 u8",
		"b8[65537]@1", "u64 b8[", "s8 s8 s8 s8 f16 f32 b8[16]@16 u24", "", "-", "u64[0]@0 u64[1]@1", "x32", "b128 b64", "f8 f128", "u8@0 u8@65536 u64@3@9", "u64@4294967295 u64@" };
	uint64_t done = 0, bytes = 0;
	for (int round = 0; round < 3000; round++) {
		struct buf text = { 0 }, out = { 0 };
		struct json j;
		uint64_t *words = (uint64_t *)(void *)box;
		kernel->params = random_word() % 8 ? session_add_text(s, types[random_word() % (sizeof(types) / sizeof(types[0]))]) : (uint32_t)random_word();
		for (size_t i = 0; i < sizeof(*box) / sizeof(*words); i++)
			words[i] = random_word() % 3 ? random_word() % 20 : random_word();
		box->fault |= 1;
		for (int i = 0; random_word() % 4 && i < SESSION_LAST_LAUNCHES; i++) {
			box->last[i].number = box->launches_then - (uint64_t)i;
			box->last[i].kernel = random_word() % 2 ? 0 : box->last[i].kernel;
		}
		struct snapshot *snap = snap_take(s);
		fault_text(s, snap, &text);
		json_init(&j, &out, JSON_PRETTY);
		fault_json(s, snap, &j);
		done += !text.failed && !out.failed && out.len > 2;
		bytes += text.len;
		buf_free(&text);
		buf_free(&out);
		snap_free(snap);
	}
	is_int(done, 3000, "anything in it is told somehow (%llu bytes)", (unsigned long long)bytes);
}

int main(void)
{
	struct diag d = { 0 };
	uint32_t id;
	bool created;
	is_int(session_create(&s, &d), 0, "session");
	session_add_prog(s, "text", 4, "on_load", EBPF_POINT_LOAD, false, &id, NULL);
	session_add_link(s, 0, EBPF_POINT_LOAD, false, "*", &id, NULL);
	is_int(session_join(s, getpid()), 0, "an agent");
	for (int i = 0; i < SESSION_MAX_AGENTS && !box; i++)
		if (session_data(s)->agents[i].pid)
			box = &session_data(s)->boxes[i];
	session_add_kernel(s, 1, "k", &id, &created);
	kernel = &session_data(s)->kernels[id];
	values();
	anything();
	session_destroy(s);
	return tap_done();
}
