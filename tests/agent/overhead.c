/* --max-overhead: a probe that costs more than the limit runs in one launch of n; the launches in which
 * it runs are counted exactly, and the target's results are right in all. */
#include "harness.h"

enum { THREADS = 64, BLOCKS = 4, ALL = THREADS * BLOCKS, LAUNCHES = 400 };

static int loop(void)
{
	CUmodule mod;
	CUfunction fn;
	CUdeviceptr buf;
	target_context();
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill")));
	CU(cuModuleGetFunction(&fn, mod, "fill"));
	CU(cuMemAlloc(&buf, ALL * 4));
	for (uint32_t i = 0; i < LAUNCHES; i++) {
		uint32_t n = ALL;
		void *params[] = { &buf, &i, &n };
		CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
		CU(cuCtxSynchronize());
		if (check_fill(buf, i, ALL))
			return 1;
	}
	return 0;
}

static const struct role roles[] = { { "loop", loop }, { 0 } };

/* `times` additions a thread. */
static struct ebpf_fragment heavy(uint32_t map, int times)
{
	static char body[65536];
	size_t at = (size_t)snprintf(body, sizeof(body),
		"{\n\t.reg .b64 %%egpu_r<1>;\n\tld.const.b64 %%egpu_r0, [__egpu_table+%u];\n",
		map * 8);
	for (int i = 0; i < times; i++)
		at += (size_t)snprintf(body + at, sizeof(body) - at,
			"\tred.global.add.u64 [%%egpu_r0+128], 1;\n");
	snprintf(body + at, sizeof(body) - at, "}\n");
	return (struct ebpf_fragment){ .name = "heavy",
		.point = EBPF_POINT_ENTRY,
		.maps = (uint64_t)1 << map,
		.max_insns = 1000,
		.body = body };
}

static void limited(int times, double percent, bool sampled, const char *what)
{
	struct run r;
	run_begin(&r);
	uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment f = heavy(map, times);
	run_attach(&r, &f, "fill");
	r.file->filter.max_overhead_ppm = (uint64_t)(percent * 1e4);
	r.file->filter.active = 1;
	is_int(run_role(&r, "loop"), 0, "%s: results are right", what);
	struct session_kernel *k = run_kernel(&r, "fill");
	if (!k)
		return;
	printf("# one in %u: %llu of %llu\n", k->one_in, (unsigned long long)k->launches_instrumented,
		(unsigned long long)k->launches);
	is_int(run_count(&r, map, 0), k->launches_instrumented * ALL * (uint64_t)times,
		"%s: what ran is counted, exactly", what);
	if (sampled)
		ok(k->one_in > 1 && k->launches_instrumented < LAUNCHES / 2 &&
				k->launches_instrumented > 4,
			"%s: few launches are probed", what);
	else
		is_int(k->launches_instrumented, LAUNCHES - LAUNCHES / 8,
			"%s: all but those that are compared with", what);
	run_end(&r);
}

int main(int argc, char **argv)
{
	harness_main(argc, argv, roles);
	limited(200, 20, true, "a heavy probe, 20 %");
	limited(1, 100000, false, "a light probe, no real limit");
	return tap_done();
}
