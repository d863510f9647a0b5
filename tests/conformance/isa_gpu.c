/* The translator as an executor of instruction sequences: each becomes a test kernel of one thread
 * on softgpu or on a GPU.
 *
 * The driver's library: EGPU_TEST_DRIVER for softgpu (conformance.t sets it), libcuda.so.1 for a
 * GPU.
 */
#include "device.h"
#include "isa.h"
#include "translate/translate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct device *device;

static bool start(const char *library, const char **why)
{
	static const char *missing;
	if (!device && !missing) {
		device = library ? device_open(library, &missing) : NULL;
		if (!library)
			missing = "EGPU_TEST_DRIVER names no driver library";
	}
	*why = missing;
	return device;
}

static int launch(struct isa_case *c, const char *ptx, const char **why)
{
	const uint32_t one[3] = { 1, 1, 1 };
	uint32_t bytes = c->program.memory_bytes;
	uint64_t memory = bytes ? device_alloc(device, bytes) : 0, result = device_alloc(device, 8);
	uint64_t table[EBPF_TABLE_SYMBOLS] = {
		[EBPF_TABLE_SMS] = device_sms(device), [EBPF_TABLE_SEED] = 1
	};
	uint64_t table_at = device_alloc(device, sizeof(table)),
		 args[3] = { memory, result, table_at };
	struct device_module *m = device_load(device, ptx);
	bool fine = m && device_write(device, table_at, table, sizeof(table)) &&
		    (!bytes || device_write(device, memory, c->mem, bytes)) &&
		    device_launch(device, m, "egpu_test", one, one, args, 3) &&
		    device_wait(device) && device_read(device, &c->r0, result, 8) &&
		    (!bytes || device_read(device, c->mem, memory, bytes));
	device_unload(device, m);
	device_free(device, memory);
	device_free(device, result);
	device_free(device, table_at);
	*why = "the device refused the kernel";
	return fine ? 0 : -1;
}

static int run_on(struct isa_case *c, const char *library, const char **why)
{
	struct arena *arena = arena_new();
	struct verifier_result v;
	struct buf ptx = { 0 };
	static struct diag d;
	int r = ISA_REFUSED;
	d = (struct diag){ 0 };
	if (!start(library, why)) {
		arena_free(arena);
		return ISA_MISSING;
	}
	if (verifier_check(arena, &c->program, NULL, &v, NULL, &d)) {
		static char text[64];
		snprintf(text, sizeof(text), "not safe: %.40s", v.tag ? v.tag : d.text);
		*why = text;
	} else if (translate_test_kernel(arena, &c->program, &v, device_target(device), &ptx, &d)) {
		*why = d.text;
		r = -1;
	} else {
		r = launch(c, ptx.data, why);
	}
	buf_free(&ptx);
	arena_free(arena);
	return r;
}

static int run_softgpu(struct isa_case *c, const char **why)
{
	return run_on(c, getenv("EGPU_TEST_DRIVER"), why);
}

static int run_gpu(struct isa_case *c, const char **why)
{
	return run_on(c, "libcuda.so.1", why);
}

const struct isa_executor isa_softgpu = { "softgpu", run_softgpu };
const struct isa_executor isa_gpu = { "gpu", run_gpu };
