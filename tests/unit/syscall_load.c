/* Real objects through libbpf: maps, globals, programs and links arrive in the session as written.
 */
#include "syscall_fixture.h"

static const char probe[] =
	"struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 100); __type(key, __u32); "
	"__type(value, __u64); } sites SEC(\".maps\");\n"
	"struct { __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); __uint(max_entries, 2); __type(key, "
	"__u32); __type(value, __u64); } per SEC(\".maps\");\n"
	"struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 8192); } events "
	"SEC(\".maps\");\n"
	"const volatile __u32 limit = 7;\n"
	"__u64 total;\n"
	"__u64 seed = 42;\n"
	"SEC(\"gpu/load/vec*\") int count_every_load_of_the_kernel(struct egpu_mem *ctx) {\n"
	"  __u32 k = 0; __u64 *v = bpf_map_lookup_elem(&per, &k);\n"
	"  if (v && ctx->bytes < limit) __sync_fetch_and_add(v, ctx->bytes);\n"
	"  __sync_fetch_and_add(&total, seed);\n"
	"  return 0; }\n"
	"SEC(\"gpu.warp/entry\") int on_entry(struct egpu_warp *ctx) {\n"
	"  __u32 k = ctx->kernel; __u64 one = 1, *v = bpf_map_lookup_elem(&sites, &k);\n"
	"  if (v) __sync_fetch_and_add(v, 1); else bpf_map_update_elem(&sites, &k, &one, "
	"BPF_ANY);\n"
	"  return 0; }\n"
	"SEC(\"raw_tp/gpu/store/*\") int on_store(struct egpu_mem *ctx) {\n"
	"  __u64 *r = bpf_ringbuf_reserve(&events, 16, 0); if (!r) return 0;\n"
	"  r[0] = ctx->address; r[1] = ctx->value[0]; bpf_ringbuf_submit(r, 0); return 0; }\n";

static const struct session_map *row_of(const char *name, uint32_t *id)
{
	const struct session_file *f = session_data(fixture_session);
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++)
		if (f->maps[i].used && !strcmp(f->maps[i].name, name)) {
			*id = i;
			return &f->maps[i];
		}
	return NULL;
}

static void test_maps(struct bpf_object *o)
{
	uint32_t id = 99, by_fd = 98, n = 0;
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++)
		n += session_data(fixture_session)->maps[i].used;
	is_int(n, 6, "the object's six maps are in the session, and nothing of libbpf's probing");
	const struct session_map *row = row_of("sites", &id);
	ok(row && row->type == BPF_MAP_TYPE_HASH && row->key_size == 4 && row->value_size == 8 &&
			row->max_entries == 100,
		"the hash has its shape");
	int fd = bpf_map__fd(bpf_object__find_map_by_name(o, "sites"));
	ok(!loader_map_id(fd, &by_fd) && by_fd == id, "its id is found by its descriptor");
	ok(row && row->btf_id && row->btf_value_type_id, "its types are known");
	char file[32];
	snprintf(file, sizeof(file), "btf-%u", row ? row->btf_id : 0);
	ok(fixture_exists(fixture_session, file), "and stored");
	uint32_t key = 5;
	uint64_t value = 55, got = 0;
	is_int(bpf_map_update_elem(fd, &key, &value, BPF_NOEXIST), 0, "update");
	ok(bpf_map_update_elem(fd, &key, &value, BPF_NOEXIST) == -EEXIST, "update of what exists");
	ok(!bpf_map_lookup_elem(fd, &key, &got) && got == 55, "lookup");
	ok(!bpf_map_get_next_key(fd, NULL, &key) && key == 5, "next key");
	ok(bpf_map_get_next_key(fd, &key, &key) == -ENOENT, "the end");
	ok(!bpf_map_lookup_and_delete_elem(fd, &key, &got) && got == 55, "lookup and delete");
	ok(bpf_map_delete_elem(fd, &key) == -ENOENT, "delete of what is gone");
	struct bpf_map_info info = { 0 };
	uint32_t len = sizeof(info);
	ok(!bpf_obj_get_info_by_fd(fd, &info, &len) && info.type == BPF_MAP_TYPE_HASH &&
			!strcmp(info.name, "sites") && info.id,
		"map information");
	int again = bpf_map_get_fd_by_id(info.id);
	ok(again >= 0 && !loader_map_id(again, &by_fd) && by_fd == id, "another descriptor by id");
	close(again);
	ok(bpf_map_lookup_elem(again, &key, &got) == -EBADF, "which is worth nothing once closed");
	again = memfd_create("other", 0);
	ok(again >= 0 && bpf_map_lookup_elem(again, &key, &got) == -EINVAL,
		"nor is its number when somebody else has it");
	close(again);
	fd = bpf_map__fd(bpf_object__find_map_by_name(o, "events"));
	ok(bpf_map_lookup_elem(fd, &key, &got) == -EOPNOTSUPP, "rings have no elements");
}

static void test_globals(struct bpf_object *o)
{
	uint32_t id, key = 0;
	const struct session_map *row = row_of("load.rodata", &id);
	ok(row && (row->flags & BPF_F_RDONLY_PROG), ".rodata is read-only");
	int fd = bpf_map__fd(bpf_object__find_map_by_name(o, "load.rodata"));
	uint32_t limit = 0;
	uint64_t seed[2] = { 0 };
	ok(!bpf_map_lookup_elem(fd, &key, &limit) && limit == 9,
		"and has what was set before loading");
	ok(bpf_map_update_elem(fd, &key, &limit, BPF_ANY) == -EPERM, "and is frozen");
	fd = bpf_map__fd(bpf_object__find_map_by_name(o, "load.data"));
	ok(!bpf_map_lookup_elem(fd, &key, &seed) && seed[0] == 42, ".data has its initial value");
	uint64_t *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ok(mapped != MAP_FAILED && mapped[0] == 42, "and can be mapped");
	if (mapped != MAP_FAILED) {
		mapped[0] = 43;
		ok(!bpf_map_lookup_elem(fd, &key, &seed) && seed[0] == 43, "both ways");
		munmap(mapped, 4096);
	}
}

static void test_progs(struct bpf_object *o)
{
	struct bpf_program *p =
		bpf_object__find_program_by_name(o, "count_every_load_of_the_kernel");
	const struct loader_prog *info = loader_prog_by_fd(bpf_program__fd(p));
	ok(info && !info->err && info->fragment, "a program was accepted");
	is_str(info ? info->name : "", "count_every_load_of_the_kernel", "under its full name");
	ok(info && info->program->context == EBPF_CONTEXT_MEM,
		"its context is that of its first argument");
	ok(info && info->program->n_lines && info->program->lines[0].text &&
			info->program->lines[0].line,
		"its source lines are known");
	ok(info == loader_prog_by_name("count_every_load_of_the_kernel"),
		"and it is found by name");
	ok(loader_prog(0) && loader_prog(2) && !loader_prog(3), "three GPU programs");
	const struct ebpf_map *ro = NULL;
	for (uint32_t i = 0; info && i < info->program->n_maps; i++)
		if (!strcmp(info->program->maps[i].name, "load.rodata"))
			ro = &info->program->maps[i];
	ok(ro && ro->frozen && ro->values && ro->values[0] == 9,
		"the verifier is told the constants");
	struct buf text = { 0 };
	struct diag d = { 0 };
	is_int(loader_fragment(info, EBPF_POINT_STORE, false, &text, &d), 0,
		"its fragment for a store");
	is_int(loader_fragment(info, EBPF_POINT_ENTRY, false, &text, &d), -EINVAL,
		"not for an entry");
	ok(strstr(d.text, "egpu_mem") != NULL, "because: %s", d.text);
	buf_free(&text);
	struct bpf_prog_info pi = { 0 };
	uint32_t len = sizeof(pi), ids[8];
	pi.nr_map_ids = 8;
	pi.map_ids = (uint64_t)(uintptr_t)ids;
	ok(!bpf_obj_get_info_by_fd(bpf_program__fd(p), &pi, &len) && pi.nr_map_ids == 4 &&
			pi.type == BPF_PROG_TYPE_RAW_TRACEPOINT,
		"program information");
}

static void test_links(struct bpf_object *o)
{
	struct session_file *f = session_data(fixture_session);
	struct bpf_link *link[3];
	struct bpf_program *p;
	uint32_t id = 99, n = 0;
	bpf_object__for_each_program(p, o)
	{
		link[n] = bpf_program__attach(p);
		struct diag d;
		loader_last_error(&d);
		ok(link[n] != NULL, "%s is attached: %s", bpf_program__section_name(p),
			link[n] ? "" : d.text);
		n++;
	}
	is_int(f->generation, 3, "three links");
	ok(f->links[0].point == EBPF_POINT_LOAD && !f->links[0].warp &&
			!strcmp(f->links[0].pattern, "vec*"),
		"pattern of the section");
	ok(f->links[1].point == EBPF_POINT_ENTRY && f->links[1].warp &&
			!strcmp(f->links[1].pattern, "from_k"),
		"the default one without");
	ok(f->links[2].point == EBPF_POINT_STORE && !strcmp(f->links[2].pattern, "*"),
		"the other spelling");
	is_str(f->progs[f->links[0].prog].name, "count_every_load_of_the_kernel",
		"the link's program");
	char *text = NULL;
	size_t size;
	struct ebpf_fragment frag;
	struct arena *a = arena_new();
	struct diag d = { 0 };
	is_int(session_read_prog(fixture_session, f->links[2].prog, &text, &size), 0,
		"its fragment is stored");
	is_int(ebpf_fragment_parse(a, text, size, &frag, &d), 0, "and can be read: %s", d.text);
	ok(!d.err && frag.point == EBPF_POINT_STORE && !frag.warp, "with its point");
	uint32_t ring;
	row_of("events", &ring);
	ok(!d.err && (frag.maps & 1ull << ring), "and its maps by session id");
	free(text);
	arena_free(a);
	struct bpf_link_info info = { 0 };
	char name[64] = "";
	uint32_t len = sizeof(info);
	info.raw_tracepoint.tp_name = (uint64_t)(uintptr_t)name;
	info.raw_tracepoint.tp_name_len = sizeof(name);
	ok(!bpf_obj_get_info_by_fd(bpf_link__fd(link[2]), &info, &len) &&
			!strcmp(name, "gpu/store/*"),
		"link information: %s", name);
	is_int(loader_link_id(bpf_link__fd(link[2]), &id), 0, "its id in the session");
	is_int(id, 2, "is 2");
	is_int(bpf_link__detach(link[2]), 0, "detached");
	is_int(f->links[2].state, SESSION_LINK_DETACHED, "in the session too");
	bpf_link__destroy(link[2]);
	bpf_link__destroy(link[1]); /* closing the last descriptor detaches, at the next command
				       that makes something */
	uint32_t next = 0;
	ok(!bpf_link_get_next_id(0, &next) && bpf_link_get_next_id(next, &next) == -ENOENT,
		"one link is left");
	is_int(f->links[1].state, SESSION_LINK_DETACHED, "the closed one is detached");
	/* The same program at another point of its context. */
	p = bpf_object__find_program_by_name(o, "on_store");
	int fd = bpf_raw_tracepoint_open("gpu/atomic/k", bpf_program__fd(p));
	ok(fd >= 0 && f->links[3].point == EBPF_POINT_ATOMIC, "the same program at another point");
	fd = bpf_raw_tracepoint_open("gpu/entry/k", bpf_program__fd(p));
	loader_last_error(&d);
	ok(fd == -EINVAL && strstr(d.text, "egpu_entry"), "not at one of another context: %s",
		d.text);
	fd = bpf_raw_tracepoint_open("sched_switch", bpf_program__fd(p));
	loader_last_error(&d);
	ok(fd == -EINVAL && strstr(d.text, "sched_switch"), "nor at a tracepoint of the kernel: %s",
		d.text);
	bpf_link__destroy(link[0]);
}

int main(void)
{
	if (!fixture_has_clang()) {
		printf("1..0 # SKIP no clang\n");
		return 0;
	}
	if (!fixture_start("from_k"))
		return tap_done();
	const char *path = fixture_compile("load", probe, "-g");
	struct bpf_object *o = path ? bpf_object__open(path) : NULL;
	ok(o != NULL, "the object is opened");
	if (o) {
		uint32_t limit = 9;
		struct diag d;
		bpf_map__set_initial_value(
			bpf_object__find_map_by_name(o, "load.rodata"), &limit, sizeof(limit));
		int err = bpf_object__load(o);
		loader_last_error(&d);
		is_int(err, 0, "and loaded %s", err ? d.text : "");
		if (!err) {
			test_maps(o);
			test_globals(o);
			test_progs(o);
			test_links(o);
		}
		bpf_object__close(o);
	}
	is_int(fixture_stop(), 0, "nothing is left behind");
	return tap_done();
}
