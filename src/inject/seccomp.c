/* seccomp.c - asks the filters of a stopped thread about the calls that dlopen and a new thread
 * make.
 *
 * A filter that kills for one of them would kill the target, so it is asked before. Reading filters
 * takes privilege; without it a filtered process is refused.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include "inject/internal.h"

enum { MAX_FILTERS = 64, MAX_INSNS = 4096, MAX_STEPS = 100000 };

#ifndef PTRACE_SECCOMP_GET_FILTER
#define PTRACE_SECCOMP_GET_FILTER 0x420c
#endif

static uint32_t load(const struct seccomp_data *data, uint32_t at)
{
	uint32_t v = 0;
	if (at <= sizeof(*data) - 4)
		memcpy(&v, (const char *)data + at, 4);
	return v;
}

static uint32_t alu(uint16_t op, uint32_t a, uint32_t b)
{
	switch (op) {
	case BPF_ADD:
		return a + b;
	case BPF_SUB:
		return a - b;
	case BPF_MUL:
		return a * b;
	case BPF_DIV:
		return b ? a / b : 0;
	case BPF_MOD:
		return b ? a % b : 0;
	case BPF_OR:
		return a | b;
	case BPF_AND:
		return a & b;
	case BPF_XOR:
		return a ^ b;
	case BPF_LSH:
		return b < 32 ? a << b : 0;
	case BPF_RSH:
		return b < 32 ? a >> b : 0;
	default:
		return -a;
	}
}

/* Classic BPF, as seccomp has it. An instruction that we do not know kills. */
static uint32_t run(const struct sock_filter *f, uint32_t n, const struct seccomp_data *data)
{
	uint32_t a = 0, x = 0, m[BPF_MEMWORDS] = { 0 };
	for (uint32_t pc = 0, steps = 0; pc < n && steps < MAX_STEPS; pc++, steps++) {
		uint16_t code = f[pc].code;
		uint32_t k = f[pc].k, b = BPF_SRC(code) == BPF_X ? x : k;
		switch (BPF_CLASS(code)) {
		case BPF_LD:
			a = BPF_MODE(code) == BPF_ABS   ? load(data, k)
			    : BPF_MODE(code) == BPF_LEN ? sizeof(*data)
			    : BPF_MODE(code) == BPF_MEM ? m[k % BPF_MEMWORDS]
							: k;
			break;
		case BPF_LDX:
			x = BPF_MODE(code) == BPF_LEN   ? sizeof(*data)
			    : BPF_MODE(code) == BPF_MEM ? m[k % BPF_MEMWORDS]
							: k;
			break;
		case BPF_ST:
			m[k % BPF_MEMWORDS] = a;
			break;
		case BPF_STX:
			m[k % BPF_MEMWORDS] = x;
			break;
		case BPF_ALU:
			a = alu(BPF_OP(code), a, b);
			break;
		case BPF_JMP: {
			bool yes = BPF_OP(code) == BPF_JEQ   ? a == b
				   : BPF_OP(code) == BPF_JGT ? a > b
				   : BPF_OP(code) == BPF_JGE ? a >= b
							     : (a & b) != 0;
			pc += BPF_OP(code) == BPF_JA ? k : yes ? f[pc].jt : f[pc].jf;
			break;
		}
		case BPF_RET:
			return BPF_RVAL(code) == BPF_A ? a : k;
		default: /* BPF_MISC */
			if (code == (BPF_MISC | BPF_TAX))
				x = a;
			else
				a = x;
		}
	}
	return SECCOMP_RET_KILL_PROCESS;
}

static const struct {
	long nr;
	const char *name;
	uint64_t args[4];
} needed[] = {
	{ SYS_openat, "openat", { 0 } },
	{ SYS_read, "read", { 0 } },
	{ SYS_pread64, "pread64", { 0 } },
	{ SYS_close, "close", { 3 } },
	{ SYS_mmap, "mmap", { 0, 4096, 5 /* read, execute */ } },
	{ SYS_mprotect, "mprotect", { 0, 4096, 1 } },
	{ SYS_munmap, "munmap", { 0 } },
	{ SYS_clone, "clone", { 0x3d0f00 /* of pthread_create */ } },
	{ SYS_futex, "futex", { 0 } },
	{ SYS_rt_sigprocmask, "rt_sigprocmask", { 0 } },
	{ SYS_rt_sigreturn, "rt_sigreturn", { 0 } },
	{ SYS_flock, "flock", { 3 } },
	{ SYS_gettid, "gettid", { 0 } },
};

static int ask(const struct sock_filter *f, uint32_t n, struct diag *d)
{
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		struct seccomp_data data = { .nr = (int)needed[i].nr, .arch = AUDIT_ARCH_X86_64 };
		for (int k = 0; k < 4; k++)
			data.args[k] = needed[i].args[k];
		uint32_t action = run(f, n, &data) & SECCOMP_RET_ACTION_FULL;
		if (action != SECCOMP_RET_ALLOW && action != SECCOMP_RET_LOG)
			return diag_set(d, EACCES,
				"its seccomp filter forbids %s, which attaching needs",
				needed[i].name);
	}
	return 0;
}

int seccomp_allows(pid_t tid, struct diag *d)
{
	char status[8192];
	const char *at = NULL;
	if (proc_read(tid, "status", status, sizeof(status)) > 0)
		at = strstr(status, "\nSeccomp:\t");
	if (!at || at[10] == '0')
		return 0;
	struct sock_filter *f = calloc(MAX_INSNS, sizeof(*f));
	int err = f ? 0 : -ENOMEM;
	for (long i = 0; !err && i < MAX_FILTERS; i++) {
		long n = ptrace(PTRACE_SECCOMP_GET_FILTER, tid, (void *)i, NULL);
		if (n < 0 && errno == ENOENT && i)
			break;
		if (n < 0 || n > MAX_INSNS ||
			ptrace(PTRACE_SECCOMP_GET_FILTER, tid, (void *)i, f) < 0)
			err = diag_set(d, EACCES,
				"it has a seccomp filter, which only root may read: whether it "
				"lets egpu in cannot be told");
		else
			err = ask(f, (uint32_t)n, d);
	}
	free(f);
	return err;
}
