/* cmd_test_run.c - `egpu test-run`: one raw program on one of the executors, for conformance
 * suites.
 *
 * Reads the instructions as hex from standard input and prints r0, as the plugins of the public
 * bpf_conformance suite do.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "cli/cli.h"
#include "cli/driver.h"
#include "cli/gpucall.h"
#include "cli/hex.h"
#include "cli/paths.h"
#include "cpu/interp.h"
#include "translate/translate.h"
#include "verifier/verifier.h"

enum { GPU_LIMIT_S = 60 };
#define MAX_PROGRAM_TEXT ((size_t)64 << 20)

struct opts {
	const char *on;
	bool memory;
	int verbose;
};

static const struct opt options[] = {
	{ 0, "on", OPT_STRING, offsetof(struct opts, on), "WHERE",
		"cpu (default), softgpu or gpu" },
	{ 0, "memory", OPT_FLAG, offsetof(struct opts, memory), NULL,
		"also print the memory afterwards, as hex" },
	{ 'v', NULL, OPT_COUNT, offsetof(struct opts, verbose), NULL,
		"print the verifier's log; twice: every state" },
	{ 0 },
};

/* What goes into the child that talks to a driver, and what comes back. */
struct gpu_job {
	const char *library, *ptx;
	uint8_t *memory; /* shared with the parent through `out` */
	size_t memory_bytes;
};

struct gpu_answer {
	uint64_t r0;
	char error[256];
	uint8_t memory[];
};

static bool gpu_child(void *arg, void *out)
{
	struct gpu_job *job = arg;
	struct gpu_answer *answer = out;
	uint64_t table[EBPF_TABLE_SYMBOLS] = { [EBPF_TABLE_SMS] = 1, [EBPF_TABLE_SEED] = 1,
		[EBPF_TABLE_PROCESS] = (uint64_t)getpid() << 32 | (uint64_t)getpid() };
	struct gpu_buffer buffers[] = { { answer->memory, job->memory_bytes },
		{ &answer->r0, sizeof(answer->r0) }, { table, sizeof(table) } };
	return !gpu_call(job->library, job->ptx, "egpu_test", 1, buffers, 3, answer->error);
}

static int gpu_failed(const char *library, const char *why)
{
	struct driver_info info;
	driver_probe(library, &info);
	return info.loads ? say_fail("%s: %s", library, why)
			  : say_fail("no CUDA driver on this machine (%s); --on=softgpu runs the "
				     "program on the CPU instead",
				    info.error);
}

static int run_on_gpu(const char *library, const char *target, struct arena *a,
	const struct ebpf_program *p, const struct verifier_result *v, uint8_t *memory,
	uint64_t *r0)
{
	struct buf ptx = { 0 };
	struct diag d = { 0 };
	char why[256] = "";
	struct gpu_answer *answer = calloc(1, sizeof(*answer) + p->memory_bytes + 8);
	int status = EGPU_FAILED;
	if (!answer || translate_test_kernel(a, p, v, target, &ptx, &d)) {
		status = answer ? say_diag("translate", &d) : say_fail("out of memory");
		goto out;
	}
	struct gpu_job job = { library, ptx.data, memory, p->memory_bytes };
	memcpy(answer->memory, memory, p->memory_bytes);
	if (!in_child(
		    gpu_child, &job, answer, sizeof(*answer) + p->memory_bytes, GPU_LIMIT_S, why)) {
		status = gpu_failed(library, *answer->error ? answer->error : why);
		goto out;
	}
	memcpy(memory, answer->memory, p->memory_bytes);
	*r0 = answer->r0;
	status = 0;
out:
	buf_free(&ptx);
	free(answer);
	return status;
}

static int run_on_softgpu(struct arena *a, const struct ebpf_program *p,
	const struct verifier_result *v, uint8_t *memory, uint64_t *r0)
{
	char path[PATH_MAX];
	struct diag d = { 0 };
	if (path_find(PATH_SOFTGPU, path, &d))
		return say_diag("softgpu", &d);
	return run_on_gpu(path, "sm_75", a, p, v, memory, r0);
}

static int run_on_cpu(const struct ebpf_program *p, const struct verifier_result *v,
	uint8_t *memory, uint64_t *r0)
{
	struct interp run = { .program = p, .memory = memory, .max_insns = v->max_run_insns };
	struct interp_result out = { 0 };
	int err = interp_run(&run, &out);
	if (err)
		return say_fail("cpu: instruction %u: %s", out.at,
			out.violation ? out.violation : strerror(-err));
	*r0 = out.r0;
	return 0;
}

static int execute(const struct opts *o, struct arena *a, const struct ebpf_program *p,
	uint8_t *memory, uint64_t *r0)
{
	struct verifier_options vo = { .log_level = o->verbose > 2 ? 2u : (uint32_t)o->verbose };
	struct verifier_result v = { 0 };
	struct buf log = { 0 };
	struct diag d = { 0 };
	const char *on = o->on ? o->on : "cpu";
	int err = verifier_check(a, p, &vo, &v, &log, &d);
	if (o->verbose && log.data)
		fputs(log.data, stderr);
	buf_free(&log);
	if (err) {
		say("the program is refused: %s", d.text);
		return 1;
	}
	if (!strcmp(on, "cpu"))
		return run_on_cpu(p, &v, memory, r0);
	if (!strcmp(on, "softgpu"))
		return run_on_softgpu(a, p, &v, memory, r0);
	if (!strcmp(on, "gpu"))
		return run_on_gpu("libcuda.so.1", "sm_75", a, p, &v, memory, r0);
	return say_fail("--on=%s: expected cpu, softgpu or gpu", on);
}

static int read_input(const struct opt_rest *rest, uint8_t **insns, size_t *insn_bytes,
	uint8_t **memory, size_t *memory_bytes)
{
	char *text;
	size_t size;
	struct diag d = { 0 };
	const char *mem = rest->n_args ? rest->args[0] : "";
	if (hex_parse(mem, strlen(mem), memory, memory_bytes, &d))
		return say_diag("memory", &d);
	if (read_file("-", MAX_PROGRAM_TEXT, &text, &size, &d))
		return say_diag("standard input", &d);
	int err = hex_parse(text, size, insns, insn_bytes, &d);
	free(text);
	if (err)
		return say_diag("standard input", &d);
	if (!*insn_bytes || *insn_bytes % sizeof(struct bpf_insn))
		return say_fail("standard input: %zu bytes are no whole number of 8-byte "
				"instructions (at least one)",
			*insn_bytes);
	return *insn_bytes / sizeof(struct bpf_insn) > EBPF_MAX_INSNS
		       ? say_fail("standard input: more than %d instructions", EBPF_MAX_INSNS)
		       : 0;
}

static int run(const void *opts, const struct opt_rest *rest)
{
	const struct opts *o = opts;
	uint8_t *insns = NULL, *memory = NULL;
	size_t insn_bytes = 0, memory_bytes = 0;
	uint64_t r0 = 0;
	struct arena *a = arena_new();
	int status = a ? read_input(rest, &insns, &insn_bytes, &memory, &memory_bytes)
		       : say_fail("out of memory");
	if (!status) {
		struct ebpf_program p = {
			.name = "test",
			.insns = (struct bpf_insn *)insns,
			.n_insns = (uint32_t)(insn_bytes / sizeof(struct bpf_insn)),
			.context = EBPF_CONTEXT_NONE,
			.memory_bytes = (uint32_t)memory_bytes,
		};
		status = execute(o, a, &p, memory, &r0);
	}
	if (!status) {
		printf("0x%" PRIx64 "\n", r0);
		for (size_t i = 0; o->memory && i < memory_bytes; i++)
			printf("%02x%s", memory[i], i + 1 == memory_bytes ? "\n" : "");
	}
	free(insns);
	free(memory);
	arena_free(a);
	return status;
}

const struct command cmd_test_run = {
	.name = "test-run",
	.synopsis = "test-run [--on cpu|softgpu|gpu] [MEMHEX] < INSNHEX",
	.summary = "runs one raw program and prints r0 in hex",
	.help = "r1 holds the address of the memory and r2 its length. A refused program is status "
		"1.\n"
		"  echo b700000007000000 9500000000000000 | egpu test-run          prints 0x7\n"
		"  echo 7110010000000000 9500000000000000 | egpu test-run --on=softgpu 'aa bb'   "
		"prints 0xbb\n",
	.opts = options,
	.opts_bytes = sizeof(struct opts),
	.run = run,
	.max_args = 1,
};
