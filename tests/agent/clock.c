/* Device time, as programs see it, lies between the host's times around the launch, within the error
 * that the agent publishes. */
#include <time.h>

#include "harness.h"

enum { ROUNDS = 20 };

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Element i of the map gets the time of launch i, before which and after which the host's is noted. */
static int timed(void)
{
	CUmodule mod;
	CUfunction fn;
	CUdeviceptr buf;
	char path[512];
	uint64_t times[2 * ROUNDS];
	target_context();
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill")));
	CU(cuModuleGetFunction(&fn, mod, "fill"));
	CU(cuMemAlloc(&buf, 256));
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t n = i;
		void *params[] = { &buf, &i, &n };
		times[2 * i] = now();
		CU(cuLaunchKernel(fn, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
		CU(cuCtxSynchronize());
		times[2 * i + 1] = now();
		usleep(1000);
	}
	snprintf(path, sizeof(path), "%s/times", getenv(SESSION_ENV));
	int fd = open(path, O_WRONLY | O_CREAT, 0600);
	if (write(fd, times, sizeof(times)) != sizeof(times))
		return 2;
	close(fd);
	return 0;
}

static const struct role roles[] = { { "timed", timed }, { 0 } };

int main(int argc, char **argv)
{
	struct run r;
	char path[512], body[600];
	uint64_t times[2 * ROUNDS];
	harness_main(argc, argv, roles);
	run_begin(&r);
	uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 2 * ROUNDS);
	/* The first launch has id 1. */
	snprintf(body, sizeof(body),
		"{\n\t.reg .b64 %%egpu_r<5>;\n\tld.const.b64 %%egpu_r0, [__egpu_table+%u];\n"
		"\tmov.u64 %%egpu_r1, %%globaltimer;\n\tld.const.b64 %%egpu_r2, [__egpu_table+%u];\n"
		"\tadd.u64 %%egpu_r1, %%egpu_r1, %%egpu_r2;\n"
		"\tatom.global.add.u64 %%egpu_r3, [%%egpu_r0+128], 1;\n"
		"\tmul.lo.u64 %%egpu_r3, %%egpu_r3, 8;\n\tadd.u64 %%egpu_r4, %%egpu_r0, %%egpu_r3;\n"
		"\tst.global.u64 [%%egpu_r4+136], %%egpu_r1;\n}\n",
		map * 8, EBPF_TABLE_CLOCK * 8);
	struct ebpf_fragment f = { .name = "clock",
		.point = EBPF_POINT_ENTRY,
		.maps = (uint64_t)1 << map,
		.max_insns = 8,
		.body = body };
	run_attach(&r, &f, "fill");
	is_int(run_role(&r, "timed"), 0, "the target ended well");
	uint64_t error = r.file->agents[0].clock_error_ns;
	printf("# error %llu ns\n", (unsigned long long)error);
	ok(error > 0 && error < 50000000, "an error is published");
	is_int(run_count(&r, map, 0), ROUNDS, "every launch left its time");
	snprintf(path, sizeof(path), "%s/times", session_path(r.session));
	int fd = open(path, O_RDONLY);
	ok(read(fd, times, sizeof(times)) == sizeof(times), "the host's times are there");
	close(fd);
	int early = 0, late = 0;
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint64_t t = run_count(&r, map, i + 1);
		early += t + error < times[2 * i];
		late += t > times[2 * i + 1] + error;
	}
	is_int(early, 0, "no launch ran before it was launched");
	is_int(late, 0, "nor after it was seen to be done");
	run_end(&r);
	return tap_done();
}
