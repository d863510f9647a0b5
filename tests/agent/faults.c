/* A driver that fails us at any call: the program's results and exit status stay its own, and the
 * session says why. */
#include "harness.h"

enum { N = 100, LAUNCHES = 4, PINNED = 20000 /* elements of a map that is pinned */ };

static int fill(void)
{
	CUmodule mod;
	CUfunction fn;
	CUdeviceptr buf;
	uint32_t add = 1, n = N;
	target_context();
	CU(cuModuleLoadData(&mod, PTX_HEAD ".global .align 4 .u32 total;\n" PTX_FILL("fill")));
	CU(cuModuleGetFunction(&fn, mod, "fill"));
	CU(cuMemAlloc(&buf, N * 4));
	void *params[] = { &buf, &add, &n };
	for (int i = 0; i < LAUNCHES; i++) {
		CU(cuLaunchKernel(fn, 1, 1, 1, N, 1, 1, 0, NULL, params, NULL));
		CU(cuCtxSynchronize());
	}
	return check_fill(buf, add, N);
}

static const struct role roles[] = { { "fill", fill }, { 0 } };

/* Calls from the agent on the way to the first instrumented launch. The program's own hooked calls
 * come through the agent too: those are left out by the number at which the fault begins. */
static const struct {
	const char *call;
	int first, last; /* ordinals at which it is made to fail */
	bool refused;    /* the kernel cannot be instrumented, whatever ordinal fails */
	bool once;       /* only once: the program makes the same call later */
} faults[] = {
	{ "cuMemAlloc_v2", 2, 2, true, false }, /* the clock's cell is the first */
	{ "cuStreamCreate", 1, 1, true, false },
	{ "cuMemcpyHtoDAsync_v2", 1, 2, true, false },
	{ "cuMemcpyDtoHAsync_v2", 1, 8, false, false },
	{ "cuLinkCreate_v2", 1, 2, false, false },
	{ "cuLinkAddData_v2", 1, 2, false, false },
	{ "cuLinkComplete", 1, 2, false, false },
	{ "cuModuleLoadData", 2, 3, false, false }, /* the first is the program's */
	{ "cuModuleGetFunction", 1, 3, false, true },
	{ "cuModuleGetGlobal_v2", 1, 2, false, false },
	{ "cuFuncGetAttribute", 1, 4, false, false },
	{ "cuFuncGetParamInfo", 1, 4, false, false },
	{ "cuMemHostRegister_v2", 1, 1, false, false },
	{ "cuStreamQuery", 1, 4, false, false },
	{ "cuStreamSynchronize", 1, 8, false, false },
	{ "cuCtxPushCurrent_v2", 1, 6, false, false },
	{ "cuDeviceGetAttribute", 1, 3, false, false },
};

/* One that also asks for the clock, so that those calls fail too. */
static struct ebpf_fragment timed_counter(uint32_t map)
{
	static char body[400];
	struct ebpf_fragment f = counter(map, EBPF_POINT_ENTRY);
	snprintf(body, sizeof(body),
		"{\n\t.reg .b64 %%egpu_r<2>;\n\tld.const.b64 %%egpu_r0, [__egpu_table+%u];\n"
		"\tld.const.b64 %%egpu_r1, [__egpu_table+%u];\n\tand.b64 %%egpu_r1, %%egpu_r1, 0;\n"
		"\tadd.u64 %%egpu_r1, %%egpu_r1, 1;\n\tred.global.add.u64 [%%egpu_r0+128], %%egpu_r1;\n}\n",
		map * 8, EBPF_TABLE_CLOCK * 8);
	f.body = body;
	return f;
}

static void one(size_t i, int at, bool once)
{
	char env[64];
	struct run r;
	run_begin(&r);
	run_use_shim(&r);
	snprintf(env, sizeof(env), "SHIM_FAULT=%s:%d", faults[i].call, at);
	r.env[0] = env;
	r.env[1] = once ? "SHIM_FAULT_ONCE=1" : NULL;
	uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, PINNED);
	struct ebpf_fragment f = timed_counter(map);
	run_attach(&r, &f, "fill");
	int status = run_role(&r, "fill");
	struct session_kernel *k = run_kernel(&r, "fill");
	const char *reason = k ? session_text(r.session, k->reason) : "";
	bool refused = k && k->state == SESSION_KERNEL_REFUSED;
	ok(!status, "%s fails at %d%s: the program is right (%s)", faults[i].call, at,
		once ? " once" : "", reason);
	if (refused)
		ok(reason[0], "and the refusal has a reason");
	else if (k)
		ok(!faults[i].refused || once, "and the kernel is in state %d", (int)k->state);
	run_end(&r);
}

static void launch_fault(void)
{
	struct run r;
	run_begin(&r);
	run_use_shim(&r);
	r.env[0] = "SHIM_FAULT=cuLaunchKernel:14"; /* after the clock's twelve and one instrumented
						     launch */
	r.env[1] = "SHIM_FAULT_ONCE=1";
	uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment f = timed_counter(map);
	run_attach(&r, &f, "fill");
	is_int(run_role(&r, "fill"), 0, "the variant's launch fails once: the original runs");
	is_int(run_count(&r, map, 0), (LAUNCHES - 1) * N, "the others are counted");
	struct session_kernel *k = run_kernel(&r, "fill");
	is_int(k ? k->launches - k->launches_instrumented : 0, 1, "and the difference shows");
	run_end(&r);
}

int main(int argc, char **argv)
{
	harness_main(argc, argv, roles);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		for (int at = faults[i].first; at <= faults[i].last; at++)
			for (int once = faults[i].once; once < 2; once++)
				one(i, at, once);
	launch_fault();
	return tap_done();
}
