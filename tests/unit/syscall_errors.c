/* What cannot be loaded or attached, each with a sentence that says why and what to do. */
#include "syscall_fixture.h"

#include <sys/syscall.h>

#define MAP(type, key, value, n, more)                                                             \
	"struct { __uint(type, " type "); __uint(max_entries, " n "); __uint(key_size, " key       \
	"); __uint(value_size, " value "); " more "} m SEC(\".maps\");\n"
#define PROG(section, type) "SEC(\"" section "\") int probe(" type " *ctx) { return 0; }\n"
#define USE(section, type)                                                                         \
	"SEC(\"" section "\") int probe(" type                                                     \
	" *ctx) { __u32 k = 0; return bpf_map_lookup_elem(&m, &k) != 0; }\n"

struct row {
	const char *name, *source, *flags;
	const char *says[3];
};

static const struct row rows[] = {
	{ "no_btf", PROG("gpu/load/k", "struct egpu_mem"), "", { "clang -g", "probe", "BTF" } },
	{ "other_struct", "struct mine { int x; };\n" PROG("gpu/load/k", "struct mine"), "-g",
		{ "struct mine", "egpu_mem", "probe" } },
	{ "no_struct", PROG("gpu/load/k", "int"), "-g", { "probe", "pointer", "egpu_entry" } },
	{ "no_argument", "SEC(\"raw_tp/k\") int probe(void) { return 0; }\n", "-g",
		{ "probe", "no argument", "egpu_entry" } },
	{ "raw_tp", PROG("raw_tp/sys_enter", "struct bpf_raw_tracepoint_args"), "-g",
		{ "bpf_raw_tracepoint_args", "egpu_mem", "probe" } },
	{ "uprobe", PROG("uprobe", "struct pt_regs"), "-g", { "gpu/POINT/KERNEL", "GPU", "cuda__" } },
	{ "pt_regs", "struct pt_regs { long x; };\nSEC(\"kprobe/k\") int probe(struct pt_regs *ctx) { return ctx->x; }\n", "-g",
		{ "struct pt_regs", "helpers 502 to 511", "egpu_entry" } },
	{ "threads_huge", MAP("1502", "4", "8", "1000000", "__uint(map_extra, 1000);") USE("gpu/load/k", "struct egpu_mem"), "-g",
		{ "map m", "1000 threads", "1073741824 bytes" } },
	{ "threads_key", MAP("1502", "8", "8", "1", "") USE("gpu/load/k", "struct egpu_mem"), "-g", { "map m", "per-thread array", "4 bytes" } },
	{ "threads_flags", MAP("1512", "4", "8", "1", "__uint(map_flags, BPF_F_MMAPABLE);") USE("gpu/load/k", "struct egpu_mem"), "-g",
		{ "map m", "flags 0x400", "not supported" } },
	{ "extra", MAP("BPF_MAP_TYPE_ARRAY", "4", "8", "4", "__uint(map_extra, 2);") USE("gpu/load/k", "struct egpu_mem"), "-g",
		{ "map m", "map_extra", "EGPU_MAP_TYPE_THREAD_ARRAY" } },
	{ "no_type", MAP("1505", "4", "8", "4", "") USE("gpu/load/k", "struct egpu_mem"), "-g", { "map m", "not supported", "RINGBUF" } },
	{ "xdp", PROG("xdp", "struct xdp_md"), "-g", { "gpu/POINT/KERNEL", "type 6", "" } },
	{ "lpm",
		MAP("BPF_MAP_TYPE_LPM_TRIE", "8", "8", "1", "__uint(map_flags, 1);")
			USE("gpu/load/k", "struct egpu_mem"),
		"-g", { "map m", "LPM_TRIE", "use a HASH" } },
	{ "flags",
		MAP("BPF_MAP_TYPE_ARRAY", "4", "8", "1", "__uint(map_flags, BPF_F_NUMA_NODE);")
			USE("gpu/load/k", "struct egpu_mem"),
		"-g", { "map m", "0x4", "flags" } },
	{ "huge",
		MAP("BPF_MAP_TYPE_HASH", "4", "100000000", "4000000000", "")
			USE("gpu/load/k", "struct egpu_mem"),
		"-g", { "map m", "4000000000 entries", "64 GiB" } },
};

static void test_refused(const struct row *r)
{
	int err;
	struct diag d;
	struct bpf_object *o = fixture_load(r->name, r->source, r->flags, &err);
	ok(o && err < 0, "%s is refused: %d", r->name, err);
	loader_last_error(&d);
	for (int i = 0; i < 3; i++)
		ok(strstr(d.text, r->says[i]) != NULL, "%s says \"%s\": %s", r->name, r->says[i],
			d.text);
	bpf_object__close(o);
}

static void test_no_pattern(void)
{
	int err;
	struct diag d;
	struct bpf_object *o = fixture_load(
		"no_pattern", PROG("gpu.warp/load", "struct egpu_warp_mem"), "-g", &err);
	is_int(err, 0, "a section without kernel is loaded");
	struct bpf_link *link = bpf_program__attach(bpf_object__next_program(o, NULL));
	loader_last_error(&d);
	ok(!link && strstr(d.text, "-k KERNEL") && strstr(d.text, "gpu.warp/load/KERNEL"),
		"and not attached: %s", d.text);
	bpf_object__close(o);
	o = fixture_load("mismatch", PROG("gpu.warp/load/k", "struct egpu_mem"), "-g", &err);
	link = err ? NULL : bpf_program__attach(bpf_object__next_program(o, NULL));
	loader_last_error(&d);
	ok(!err && !link && strstr(d.text, "struct egpu_warp_mem"),
		"a section of another context: %s", d.text);
	bpf_object__close(o);
	o = fixture_load("point", PROG("gpu/sometimes/k", "struct egpu_mem"), "-g", &err);
	link = err ? NULL : bpf_program__attach(bpf_object__next_program(o, NULL));
	loader_last_error(&d);
	ok(!err && !link && strstr(d.text, "gpu/sometimes/k") &&
			strstr(d.text, "entry, exit, load"),
		"a point there is not: %s", d.text);
	bpf_object__close(o);
}

static void test_raw_calls(void)
{
	char log[64];
	struct bpf_insn insns[] = { { .code = BPF_ALU64 | BPF_MOV | BPF_K },
		{ .code = BPF_JMP | BPF_EXIT } };
	LIBBPF_OPTS(
		bpf_prog_load_opts, opts, .log_buf = log, .log_size = sizeof(log), .log_level = 1);
	memset(log, 'x', sizeof(log));
	int fd = bpf_prog_load(BPF_PROG_TYPE_RAW_TRACEPOINT, "p", "GPL", insns, 2, &opts);
	is_int(fd, -ENOSPC, "a log that does not fit");
	ok(strlen(log) == 63 && strstr(log, "clang -g"), "keeps its end: %s", log);
	union bpf_attr attr = {
		.prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT,
		.insns = (uint64_t)(uintptr_t)insns,
		.insn_cnt = 2,
		.log_buf = (uint64_t)(uintptr_t)log,
		.log_size = sizeof(log),
		.log_level = 1 | 8,
	};
	strcpy(attr.prog_name, "p");
	ok(syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr)) == -1 && errno == ENOSPC,
		"through syscall(2) itself");
	ok(strlen(log) == 63 && !strncmp(log, "program p", 9), "or its beginning, when told so: %s",
		log);
	is_int(bpf_prog_load(BPF_PROG_TYPE_RAW_TRACEPOINT, "p", "GPL", insns, 2, NULL), -EINVAL,
		"without a log only the error");
	fd = bpf_prog_load(BPF_PROG_TYPE_SOCKET_FILTER, "probe", "GPL", insns, 2, NULL);
	ok(fd >= 0, "a feature probe is accepted");
	is_int(bpf_raw_tracepoint_open("gpu/load/k", fd), -EINVAL, "and cannot be attached");
	close(fd);
	is_int(bpf_prog_load(BPF_PROG_TYPE_SOCKET_FILTER, "probe", "GPL", insns, 1, NULL), -EINVAL,
		"one without an exit is not");
	is_int(bpf_prog_load(BPF_PROG_TYPE_RAW_TRACEPOINT, "bad name", "GPL", insns, 2, NULL),
		-EINVAL, "a name with a space");
	is_int(bpf_map_freeze(fd), -EBADF, "a closed descriptor");
	is_int(bpf_map_freeze(0), -EINVAL, "a descriptor of something else");
	is_int(bpf_obj_pin(0, "/sys/fs/bpf/x"), -EINVAL, "a command that is not served");
	uint32_t id;
	is_int(loader_map_id(0, &id), -ENOENT, "an id of something else");
	ok(getppid() > 0 && syscall(SYS_getpid) == getpid(), "other system calls reach the kernel");
	is_int(syscall(100000), -1, "with their errors");
	is_int(errno, ENOSYS, "in errno");
	struct btf *btf = btf__new_empty();
	btf__add_int(btf, "int", 4, BTF_INT_SIGNED);
	uint32_t size;
	char blob[256];
	const void *raw = btf__raw_data(btf, &size);
	memcpy(blob, raw, size);
	fd = bpf_btf_load(blob, size, NULL);
	ok(fd >= 0, "BTF is taken");
	struct bpf_btf_info info = { 0 };
	char back[256];
	uint32_t len = sizeof(info);
	info.btf = (uint64_t)(uintptr_t)back;
	info.btf_size = sizeof(back);
	ok(!bpf_obj_get_info_by_fd(fd, &info, &len) && info.btf_size == size &&
			!memcmp(back, blob, size),
		"and given back");
	close(fd);
	blob[0] ^= 1;
	is_int(bpf_btf_load(blob, size, NULL), -EINVAL, "not without its magic");
	blob[0] ^= 1;
	is_int(bpf_btf_load(blob, size - 1, NULL), -EINVAL, "not cut short");
	btf__free(btf);
}

/* Objects that nobody holds make room: 200 maps one after the other, though a session holds 64. */
static void test_room(void)
{
	int bad = 0, fd;
	for (int i = 0; i < 200; i++) {
		fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "m", 4, 8, 1, NULL);
		bad += fd < 0;
		int other = fcntl(fd, F_DUPFD_CLOEXEC, 100);
		close(fd);
		fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "n", 4, 8, 1, NULL);
		uint32_t key = 0;
		uint64_t v;
		bad += fd < 0 || bpf_map_lookup_elem(other, &key, &v) !=
					 0; /* a copy of the descriptor holds it */
		close(fd);
		close(other);
	}
	is_int(bad, 0, "maps that nobody holds make room");
	int fds[80], n = 0;
	while (n < 80 && (fds[n] = bpf_map_create(BPF_MAP_TYPE_ARRAY, "m", 4, 8, 1, NULL)) >= 0)
		n++;
	ok(n >= 60 && n <= 64, "those that are held do not: %d", n);
	struct diag d;
	loader_last_error(&d);
	ok(strstr(d.text, "too many maps") != NULL, "%s", d.text);
	while (n--)
		close(fds[n]);
}

int main(void)
{
	if (!fixture_start(NULL))
		return tap_done();
	struct loader_options again = { .session = fixture_session };
	is_int(loader_start(&again, NULL), -EBUSY, "one loader a process");
	test_raw_calls();
	test_room();
	if (fixture_has_clang()) {
		for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
			test_refused(&rows[i]);
		test_no_pattern();
	} else {
		tap_skip("no clang");
	}
	is_int(fixture_stop(), 0, "nothing is left behind");
	return tap_done();
}
