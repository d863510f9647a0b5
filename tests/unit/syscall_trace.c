/* Programs that call bpf_trace_printk get a ring of egpu's own; two objects share it. Verified and
 * translated for real. */
#include "syscall_fixture.h"

static const char probe[] = "SEC(\"gpu/entry/*\") int say(struct egpu_entry *ctx) {\n"
			    "  static const char fmt[] = \"block %u\\n\";\n"
			    "  bpf_trace_printk(fmt, sizeof(fmt), ctx->block.x); return 0; }\n";
static const char unsafe[] = "struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 4); "
			     "__type(key, __u32); __type(value, __u64); } m SEC(\".maps\");\n"
			     "SEC(\"gpu/load/*\") int wild(struct egpu_mem *ctx) {\n"
			     "  __u32 k = 0; __u64 *v = bpf_map_lookup_elem(&m, &k);\n"
			     "  *v = 1; return 0; }\n";

static uint32_t trace_maps(uint32_t *id)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++) {
		const struct session_map *row = &session_data(fixture_session)->maps[i];
		if (row->used && !strcmp(row->name, "egpu_trace")) {
			n++;
			*id = i;
		}
	}
	return n;
}

static void test_trace(void)
{
	int err;
	uint32_t id = 0;
	struct diag d = { 0 };
	is_int(trace_maps(&id), 0, "no trace ring before it is needed");
	struct bpf_object *o = fixture_load("say", probe, "-g", &err);
	loader_last_error(&d);
	is_int(err, 0, "a program that prints is accepted %s", err ? d.text : "");
	is_int(trace_maps(&id), 1, "a trace ring was made");
	const struct session_map *row = &session_data(fixture_session)->maps[id];
	ok(row->internal == 1 && row->max_entries == 65536 && row->type == BPF_MAP_TYPE_RINGBUF,
		"of egpu's own, 64 KiB");
	const struct loader_prog *p = loader_prog_by_name("say");
	ok(p && p->fragment && (p->fragment->maps & 1ull << id), "the program's code uses it");
	struct bpf_object *again = fixture_load("say2", probe, "-g", &err);
	ok(!err && trace_maps(&id) == 1, "a second object shares it");
	bpf_object__close(again);
	bpf_object__close(o);
	int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "later", 4, 8, 1, NULL);
	is_int(trace_maps(&id), 1, "and it stays when they are gone");
	close(fd);
}

static void test_unsafe(void)
{
	int err;
	struct diag d = { 0 };
	struct bpf_object *o = fixture_load("wild", unsafe, "-g", &err);
	loader_last_error(&d);
	ok(err < 0 && d.err, "an unsafe program is refused: %s", d.text);
	const struct loader_prog *p = loader_prog_by_name("wild");
	ok(p && p->err < 0 && !p->fragment && p->program, "its report is kept");
	ok(p && strstr(p->log, d.text) && strlen(p->log) > strlen(d.text),
		"with the verifier's log");
	ok(p && p->verified.tag && !strcmp(p->verified.tag, "null"), "and its reason");
	bpf_object__close(o);
}

int main(void)
{
	if (!fixture_has_clang()) {
		printf("1..0 # SKIP no clang\n");
		return 0;
	}
	if (!fixture_start(NULL))
		return tap_done();
	test_trace();
	test_unsafe();
	is_int(fixture_stop(), 0, "nothing is left behind");
	return tap_done();
}
