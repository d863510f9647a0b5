/* driver_test.h - kernels and shorthands for the tests of softgpu's driver API. */
#ifndef EGPU_TESTS_DRIVER_TEST_H
#define EGPU_TESTS_DRIVER_TEST_H

#include <time.h>
#include <unistd.h>

#include "egpu/cuda.h"
#include "tap.h"

#define PTX_HEAD ".version 7.0\n.target sm_75\n.address_size 64\n"

/* Kernels:
 *	set(p, v)          *p = v
 *	add(p, v)          every thread adds v to *p, atomically
 *	wait_set(f, p, v)  spins until *f is not 0, then *p = v
 *	index(p)           p[global thread] = global thread
 *	shared(p)          *p = bytes of dynamic shared memory
 *	wild(p)            stores at the address p
 *	mixed(a, b, c, d)  an 8-bit, a 64-bit, a 16-bit and a 32-bit parameter, summed to *out
 * and the variables `counter` (.global, 5) and `table` (.const, {1, 2, 3}). */
static const char test_ptx[] = PTX_HEAD
	".visible .global .align 4 .u32 counter = 5;\n"
	".visible .const .align 4 .u32 table[3] = {1, 2, 3};\n"
	".visible .entry set(.param .u64 p, .param .u32 v) {\n"
	" .reg .b64 %rd<2>; .reg .b32 %r<2>;\n"
	" ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [v]; st.global.u32 [%rd1], %r1; ret;\n}\n"
	".visible .entry add(.param .u64 p, .param .u32 v) {\n"
	" .reg .b64 %rd<2>; .reg .b32 %r<3>;\n"
	" ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [v]; atom.global.add.u32 %r2, [%rd1], %r1; "
	"ret;\n}\n"
	".visible .entry wait_set(.param .u64 f, .param .u64 p, .param .u32 v) {\n"
	" .reg .b64 %rd<3>; .reg .b32 %r<3>; .reg .pred %p<2>;\n"
	" ld.param.u64 %rd1, [f]; ld.param.u64 %rd2, [p]; ld.param.u32 %r1, [v];\n"
	"again:\n"
	" ld.volatile.global.u32 %r2, [%rd1]; setp.eq.u32 %p1, %r2, 0; @%p1 bra again;\n"
	" st.global.u32 [%rd2], %r1; ret;\n}\n"
	".visible .entry index(.param .u64 p) {\n"
	" .reg .b64 %rd<4>; .reg .b32 %r<5>;\n"
	" ld.param.u64 %rd1, [p]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, "
	"%tid.x;\n"
	" mad.lo.u32 %r4, %r1, %r2, %r3; mul.wide.u32 %rd2, %r4, 4; add.s64 %rd3, %rd1, %rd2;\n"
	" st.global.u32 [%rd3], %r4; ret;\n}\n"
	".extern .shared .align 16 .b8 dynamic[];\n"
	".visible .entry shared(.param .u64 p) {\n"
	" .reg .b64 %rd<2>; .reg .b32 %r<3>;\n"
	" ld.param.u64 %rd1, [p]; mov.u32 %r1, dynamic; st.shared.u32 [%r1], 1;\n"
	" mov.u32 %r2, %dynamic_smem_size; st.global.u32 [%rd1], %r2; ret;\n}\n"
	".visible .entry wild(.param .u64 p) {\n"
	" .reg .b64 %rd<2>;\n"
	" ld.param.u64 %rd1, [p]; st.global.u32 [%rd1], 1; ret;\n}\n"
	".visible .entry mixed(.param .u8 a, .param .u64 b, .param .u16 c, .param .u32 d, .param "
	".u64 out) {\n"
	" .reg .b64 %rd<8>; .reg .b32 %r<2>; .reg .b16 %rs<3>;\n"
	" ld.param.u8 %rs1, [a]; ld.param.u64 %rd1, [b]; ld.param.u16 %rs2, [c]; ld.param.u32 %r1, "
	"[d];\n"
	" ld.param.u64 %rd2, [out]; cvt.u64.u16 %rd3, %rs1; cvt.u64.u16 %rd4, %rs2; cvt.u64.u32 "
	"%rd5, %r1;\n"
	" add.s64 %rd6, %rd1, %rd3; add.s64 %rd6, %rd6, %rd4; add.s64 %rd6, %rd6, %rd5;\n"
	" st.global.u64 [%rd2], %rd6; ret;\n}\n";

static CUdevice dev;
static CUcontext ctx;
static CUmodule module;

/* A program ends with `Bail out!` where going on makes no sense. */
#define need(call)                                                                                 \
	do {                                                                                       \
		CUresult need_r = (call);                                                          \
		if (need_r) {                                                                      \
			printf("Bail out! %s: %d\n", #call, (int)need_r);                          \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static inline void test_open(void)
{
	need(cuInit(0));
	need(cuDeviceGet(&dev, 0));
	need(cuDevicePrimaryCtxRetain(&ctx, dev));
	need(cuCtxSetCurrent(ctx));
	need(cuModuleLoadData(&module, test_ptx));
}

static inline CUfunction kernel(const char *name)
{
	CUfunction f;
	need(cuModuleGetFunction(&f, module, name));
	return f;
}

static inline CUresult launch(
	CUfunction f, unsigned grid, unsigned block, CUstream stream, void **params)
{
	return cuLaunchKernel(f, grid, 1, 1, block, 1, 1, 0, stream, params, NULL);
}

static inline CUdeviceptr device_word(uint32_t value)
{
	CUdeviceptr p;
	need(cuMemAlloc(&p, 4));
	need(cuMemcpyHtoD(p, &value, 4));
	return p;
}

static inline uint32_t read_word(CUdeviceptr p)
{
	uint32_t v = 0xdeadbeef;
	need(cuMemcpyDtoH(&v, p, 4));
	return v;
}

/* Host memory that kernels read: what opens a wait_set. */
static inline volatile uint32_t *gate_new(void)
{
	void *p;
	need(cuMemHostAlloc(&p, 4, 0));
	*(volatile uint32_t *)p = 0;
	return p;
}

static inline void gate_set(volatile uint32_t *gate, uint32_t value)
{
	__atomic_store_n(gate, value, __ATOMIC_RELEASE);
}

static inline void sleep_ms(unsigned ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
}

/* Launches wait_set(gate, p, v). */
static inline CUresult launch_gated(
	volatile uint32_t *gate, CUdeviceptr p, uint32_t v, CUstream stream)
{
	void *params[] = { &gate, &p, &v };
	return launch(kernel("wait_set"), 1, 1, stream, params);
}

#endif
