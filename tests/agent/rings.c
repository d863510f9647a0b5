/* Ring buffers on the device reach the session's ring whole and in order, at the end and while
 * kernels run; what finds no room is counted; other maps are folded as the layout says. */
#include "harness.h"

enum { THREADS = 64, BLOCKS = 5 };

/* Reserves 8 bytes in the bin of the launch's number modulo 8, writes the launch id, commits: what the translator's ring helpers come to, without their
 * choice of bins. */
static const char ring_body[] =
	"{\n\t.reg .pred %egpu_p<3>;\n\t.reg .b64 %egpu_r<12>;\n\t.reg .b32 %egpu_w<6>;\n"
	"\tld.const.b64 %egpu_r0, [__egpu_table];\n"
	"\tld.const.b64 %egpu_r1, [__egpu_table+512];\n"
	"\tcvt.u32.u64 %egpu_w0, %egpu_r1;\n"
	"\tmad.wide.u32 %egpu_r2, %egpu_w0, 256, %egpu_r0;\n"  /* committed */
	"\tmad.wide.u32 %egpu_r3, %egpu_w0, 384, %egpu_r0;\n"  /* heads */
	"\tmad.wide.u32 %egpu_r4, %egpu_w0, 512, %egpu_r0;\n"  /* data */
	"\tand.b64 %egpu_r6, %egpu_launch, 7;\n"
	"\tmad.lo.u64 %egpu_r2, %egpu_r6, 64, %egpu_r2;\n"
	"\tmad.lo.u64 %egpu_r3, %egpu_r6, 64, %egpu_r3;\n"
	"\tmad.lo.u64 %egpu_r4, %egpu_r6, 4096, %egpu_r4;\n"
	"\tatom.global.add.u64 %egpu_r5, [%egpu_r3+128], 32;\n"
	"\tsetp.ge.u64 %egpu_p0, %egpu_r5, 4096;\n"
	"\t@%egpu_p0 bra $egpu_full;\n"
	"\tadd.u64 %egpu_r8, %egpu_r4, %egpu_r5;\n"
	"\tmov.u32 %egpu_w1, 8;\n"
	"\tst.volatile.global.u32 [%egpu_r8+128], %egpu_w1;\n"
	"\tmov.u32 %egpu_w2, 1;\n"
	"\tst.volatile.global.u32 [%egpu_r8+132], %egpu_w2;\n"
	"\tst.volatile.global.u64 [%egpu_r8+144], %egpu_launch;\n"
	"\tmembar.gl;\n"
	"\tred.global.add.u64 [%egpu_r2+128], 32;\n"
	"\tbra $egpu_end;\n"
	"$egpu_full:\n"
	"\tred.global.add.u64 [%egpu_r0+256], 1;\n"
	"$egpu_end:\n}\n";

/* One value a multiprocessor. */
static const char percpu_body[] =
	"{\n\t.reg .b64 %egpu_r<4>;\n\t.reg .b32 %egpu_w<3>;\n"
	"\tld.const.b64 %egpu_r0, [__egpu_table];\n\tld.const.b64 %egpu_r1, [__egpu_table+512];\n"
	"\tcvt.u32.u64 %egpu_w0, %egpu_r1;\n\tsub.u32 %egpu_w0, %egpu_w0, 1;\n\tmin.u32 %egpu_w1, "
	"%egpu_sm, %egpu_w0;\n"
	"\tmul.wide.u32 %egpu_r2, %egpu_w1, 128;\n\tadd.u64 %egpu_r3, %egpu_r0, %egpu_r2;\n"
	"\tred.global.add.u64 [%egpu_r3+128], 1;\n}\n";

static int launches(int n, bool pause)
{
	CUmodule mod;
	CUfunction fn;
	CUdeviceptr buf;
	uint32_t add = 1, count = THREADS * BLOCKS;
	target_context();
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill")));
	CU(cuModuleGetFunction(&fn, mod, "fill"));
	CU(cuMemAlloc(&buf, count * 4));
	void *params[] = { &buf, &add, &count };
	for (int i = 0; i < n; i++) {
		CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
		if (pause) {
			CU(cuCtxSynchronize());
			usleep(20000);
		}
	}
	CU(cuCtxSynchronize());
	return check_fill(buf, add, count);
}

/* Four contexts on two devices, their launches in turn. */
static int devices(void)
{
	enum { CONTEXTS = 4 };
	CUcontext ctx[CONTEXTS];
	CUfunction fn[CONTEXTS];
	CUdeviceptr buf[CONTEXTS];
	uint32_t add = 1, count = THREADS * BLOCKS;
	int n = 0, bad = 0;
	CU(cuInit(0));
	CU(cuDeviceGetCount(&n));
	for (int k = 0; k < CONTEXTS; k++) {
		CUmodule mod;
		CU(cuCtxCreate(&ctx[k], NULL, 0, k % n));
		CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill")));
		CU(cuModuleGetFunction(&fn[k], mod, "fill"));
		CU(cuMemAlloc(&buf[k], count * 4));
	}
	for (int i = 0; i < 5; i++) {
		for (int k = 0; k < CONTEXTS; k++) {
			void *params[] = { &buf[k], &add, &count };
			CU(cuCtxSetCurrent(ctx[k]));
			CU(cuLaunchKernel(fn[k], BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
			CU(cuCtxSynchronize());
		}
		usleep(10000);
	}
	for (int k = 0; k < CONTEXTS; k++) {
		CU(cuCtxSetCurrent(ctx[k]));
		bad |= check_fill(buf[k], add, count);
	}
	return n < 2 ? 99 : bad;
}

static int once(void)
{
	return launches(1, false);
}

static int slowly(void)
{
	return launches(20, true);
}

/* More than fits a reader's ring, and then nothing for a while. */
static int stays(void)
{
	int bad = launches(8, false);
	return bad || usleep(10000000) ? 1 : 0;
}

static int quickly(void)
{
	return launches(200, false);
}

static const struct role roles[] = { { "once", once }, { "slowly", slowly }, { "quickly", quickly },
	{ "devices", devices },
	{ "stays", stays }, { 0 } };

struct seen {
	uint64_t records, sum, last;
	bool ordered, sized;
};

static int take(void *arg, const void *data, uint32_t bytes)
{
	struct seen *s = arg;
	uint64_t id;
	memcpy(&id, data, sizeof(id));
	s->sized &= bytes == 8;
	s->ordered &= id >= s->last;
	s->last = id;
	s->records++;
	s->sum += id;
	return 0;
}

static uint32_t ring_attach(struct run *r)
{
	uint32_t map = run_map(r, BPF_MAP_TYPE_RINGBUF, 0, 0, 4096);
	struct ebpf_fragment f = { .name = "ring",
		.point = EBPF_POINT_ENTRY,
		.fields = (uint64_t)1 << EBPF_FIELD_LAUNCH,
		.maps = 1,
		.max_insns = 20,
		.body = ring_body };
	run_attach(r, &f, "fill");
	return map;
}

static void ring(const char *role, int n, bool loses, bool read_meanwhile)
{
	struct run r;
	struct map *m;
	struct diag d = { 0 };
	struct seen s = { .ordered = true, .sized = true };
	run_begin(&r);
	uint32_t map = ring_attach(&r);
	r.env[0] = !strcmp(role, "devices") ? "EGPU_SOFTGPU=devices=2,sms=4" : "EGPU_SOFTGPU=sms=4";
	if (map_open(r.session, map, &m, &d)) {
		ok(false, "%s", d.text);
		return;
	}
	pid_t pid = run_start(&r, role);
	int status = -2;
	while (read_meanwhile && waitpid(pid, &r.status, WNOHANG) == 0) {
		map_ring_consume(m, take, &s);
		usleep(1000);
	}
	status = read_meanwhile ? (WIFEXITED(r.status) ? WEXITSTATUS(r.status) : 1000)
				: run_wait(&r, pid, 60);
	is_int(status, 0, "%s: results are right", role);
	map_ring_consume(m, take, &s);
	uint64_t total = (uint64_t)n * THREADS * BLOCKS, lost = map_lost(m);
	is_int(s.records + lost, total, "%s: every record came or was counted as lost (%llu came)",
		role, (unsigned long long)s.records);
	ok(s.sized, "%s: sizes are right", role);
	ok(s.records > 0 && s.sum >= s.records, "%s: contents are there", role);
	if (!loses) {
		is_int(lost, 0, "%s: none was lost", role);
		is_int(s.sum, (uint64_t)n * (n + 1) / 2 * THREADS * BLOCKS,
			"%s: each launch's records are whole", role);
	}
	map_close(m);
	run_end(&r);
}

/* What waits on the device comes as the reader makes room, also while the program does nothing more. */
static void waiting(void)
{
	struct run r;
	struct map *m;
	struct diag d = { 0 };
	struct seen s = { .sized = true };
	const uint64_t total = 8ull * THREADS * BLOCKS;
	run_begin(&r);
	if (map_open(r.session, ring_attach(&r), &m, &d)) {
		ok(false, "%s", d.text);
		return;
	}
	r.env[0] = "EGPU_SOFTGPU=sms=4";
	pid_t pid = run_start(&r, "stays");
	usleep(150000); /* the first look at the ring finds nobody who reads */
	for (int i = 0; i < 40 && s.records + map_lost(m) < total && !waitpid(pid, &r.status, WNOHANG); i++) {
		map_ring_consume(m, take, &s);
		usleep(80000); /* a look of the agent's, or two */
	}
	ok(map_lost(m) < total, "stays: not all were lost");
	is_int(s.records + map_lost(m), total, "stays: every record came or was counted, and the program is still there");
	kill(pid, SIGKILL);
	run_wait(&r, pid, 10);
	map_close(m);
	run_end(&r);
}

static void percpu(void)
{
	struct run r;
	struct map *m;
	struct diag d = { 0 };
	uint32_t key = 0;
	uint64_t sum = 0;
	run_begin(&r);
	uint32_t map = run_map(&r, BPF_MAP_TYPE_PERCPU_ARRAY, 4, 8, 1);
	struct ebpf_fragment f = { .name = "percpu",
		.point = EBPF_POINT_ENTRY,
		.fields = (uint64_t)1 << EBPF_FIELD_SM,
		.maps = 1,
		.max_insns = 5,
		.body = percpu_body };
	run_attach(&r, &f, "fill");
	is_int(run_role(&r, "quickly"), 0, "per-CPU: results are right");
	if (!map_open(r.session, map, &m, &d)) {
		is_int(map_lookup_sum(m, &key, &sum), 0, "per-CPU: a value");
		map_close(m);
	}
	is_int(sum, 200ull * THREADS * BLOCKS, "per-CPU: the sum over slots is exact");
	run_end(&r);
}

int main(int argc, char **argv)
{
	harness_main(argc, argv, roles);
	ring("slowly", 20, true, true);
	ring("once", 1, true, false);
	ring("quickly", 200, true, true);
	ring("devices", 20, true, true);
	for (int i = 0; i < 3; i++) /* it depends on when the agent looks */
		waiting();
	percpu();
	return tap_done();
}
