/* thread.c - borrows a thread of the target for one call of dlopen.
 *
 *	 the thread's stack, growing down
 *	+-----------------------------+ rsp where it was stopped
 *	| red zone, 128 bytes         |
 *	| library's path              |
 *	| extended state (xsave)      | 64-byte aligned
 *	| ucontext: all its registers | 16-byte aligned
 *	| return address: rt_sigreturn|
 *	| ucontext: a store to errno  | 16-byte aligned
 *	| return address: rt_sigreturn| <- rsp at the call
 *	+-----------------------------+
 *
 * dlopen returns into the C library's `mov $15, %rax; syscall`, with rsp at a ucontext: the kernel sets the registers
 * for a store of the C library's own (`mov %edx, (%rdi); ret`), which puts errno back and returns in the same way into
 * the second: the kernel puts everything back, long after we have let go of the thread. A system call with a time
 * limit would end with EINTR that way: where the thread was in one, there is only the last frame, we stay, catch
 * rt_sigreturn at its entry and set errno and the registers by ptrace, so that the call goes on as if nothing had been.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "inject/internal.h"

void inject_step(const char *name)
{
	const char *at = getenv("EGPU_INJECT_DIE_AT");
	if (at && !strcmp(at, name))
		kill(getpid(), SIGKILL);
}

ssize_t read_memory(pid_t pid, uint64_t at, void *to, size_t n)
{
	struct iovec here = { to, n }, there = { (void *)(uintptr_t)at, n };
	return process_vm_readv(pid, &here, 1, &there, 1, 0);
}

#ifdef __x86_64__
#include <sys/reg.h>
#include <sys/user.h>

enum {
	RED_ZONE = 128,
	STACK_SEEN = 16384, /* of a stack, looked through for functions that hold locks */
	STATE_MAX = 32768,
	TRIES_MS = 3000,
	HANDLERS = 4, /* of signals, each within the other */
	PREFER_MS = 15,
	CALL_MS = 10000,
	XSTATE_SET = 0x202,      /* NT_X86_XSTATE */
	FRAME_FLAGS = 1 | 2 | 4, /* extended state follows; ss is given, and meant */
	FP_MAGIC1 = 0x46505853,
	FP_MAGIC2 = 0x46505845,
	FP_SW_AT = 464, /* words for software in the xsave area */
	E_RESTART_SYS = -512,
	E_RESTART_NOINTR = -513,
	E_RESTART_NOHAND = -514,
	E_RESTART_BLOCK = -516,
};

#define STRICT_NS 300000000ull

struct thread {
	pid_t pid, tid;
	struct user_regs_struct regs;
	long call; /* the system call that it is in; negative: none */
	uint8_t state[STATE_MAX];
	size_t state_bytes;
	uint64_t mask; /* of signals */
	uint64_t errno_at; /* 0: not known */
	uint32_t errno_was;
	uint64_t stopped_ns;
};

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void nap_us(long us)
{
	struct timespec t = { 0, us * 1000 };
	nanosleep(&t, NULL);
}

static bool in(const struct range *r, uint64_t at)
{
	return at >= r->from && at < r->to;
}

/* -- stopping ------------------------------------------------------------------------- */

/* Waits for the thread's next stop: its status, or -errno (-ESRCH: it has ended). SIGCHLD, which is blocked,
 * tells of it at once; it may be that of an earlier stop or another child. */
static int wait_stop(pid_t tid, int ms, int *status)
{
	struct timespec tick = { 0, 10000000 };
	sigset_t child;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	for (uint64_t end = now_ns() + (uint64_t)ms * 1000000;;) {
		pid_t got = waitpid(tid, status, __WALL | WNOHANG);
		if (got == tid)
			return WIFSTOPPED(*status) ? 0 : -ESRCH;
		if (got < 0 && errno != EINTR)
			return -errno;
		if (now_ns() > end)
			return -ETIMEDOUT;
		sigtimedwait(&child, NULL, &tick);
	}
}

static bool event_stop(int status)
{
	return status >> 16 == PTRACE_EVENT_STOP;
}

static void let_go(pid_t tid, int signal)
{
	ptrace(PTRACE_DETACH, tid, NULL, (void *)(intptr_t)signal);
}

/* Calls that end with EINTR when their thread is stopped, though nobody sends it a signal, and that are made again without anybody
 * noticing, but for a time limit that begins anew. */
static bool ends_by_stop(long call)
{
	switch (call) {
	case SYS_epoll_wait:
	case SYS_epoll_pwait:
	case SYS_epoll_pwait2:
	case SYS_rt_sigtimedwait:
	case SYS_semop:
	case SYS_semtimedop:
	case SYS_io_getevents:
	case SYS_io_pgetevents:
	case SYS_io_uring_enter:
	/* Sockets with a time limit, and file systems in user space. */
	case SYS_read:
	case SYS_readv:
	case SYS_write:
	case SYS_writev:
	case SYS_recvfrom:
	case SYS_recvmsg:
	case SYS_recvmmsg:
	case SYS_sendto:
	case SYS_sendmsg:
	case SYS_accept:
	case SYS_accept4:
	case SYS_connect:
		return true;
	default:
		return false;
	}
}

/* The thread goes on with such a call whatever becomes of it now. With a signal on its way EINTR is what the program expects. */
static int make_again(struct thread *t)
{
	if ((long)t->regs.rax != -EINTR || !ends_by_stop(t->call) || look_signalled(t->pid, t->tid))
		return 0;
	t->regs.rax = t->regs.orig_rax;
	t->regs.orig_rax = (unsigned long)-1;
	t->regs.rip -= 2;
	return ptrace(PTRACE_SETREGS, t->tid, NULL, &t->regs) ? -errno : 0;
}

/* Stops the thread between two of its instructions. -EAGAIN: try another time. */
static int stop(struct thread *t)
{
	int status;
	if (ptrace(PTRACE_SEIZE, t->tid, NULL, NULL))
		return -errno;
	inject_step("seized");
	t->stopped_ns = now_ns();
	if (ptrace(PTRACE_INTERRUPT, t->tid, NULL, NULL)) {
		let_go(t->tid, 0);
		return -EAGAIN;
	}
	int err = wait_stop(t->tid, 200, &status);
	if (err) { /* in a call that cannot be interrupted: it will stop once, and must not stay so
		    */
		if (wait_stop(t->tid, 2000, &status))
			return -EIO;
		let_go(t->tid, 0);
		return -EAGAIN;
	}
	inject_step("stopped");
	if (!event_stop(status) || WSTOPSIG(status) != SIGTRAP) {
		let_go(t->tid, event_stop(status) ? 0 : WSTOPSIG(status));
		return -EAGAIN;
	}
	struct iovec io = { t->state, sizeof(t->state) };
	if (ptrace(PTRACE_GETREGS, t->tid, NULL, &t->regs) ||
		ptrace(PTRACE_GETREGSET, t->tid, XSTATE_SET, &io) ||
		ptrace(PTRACE_GETSIGMASK, t->tid, sizeof(t->mask), &t->mask)) {
		err = -errno;
		let_go(t->tid, 0);
		return err;
	}
	t->state_bytes = io.iov_len;
	t->call = (long)t->regs.orig_rax;
	err = make_again(t);
	if (err)
		let_go(t->tid, 0);
	return err;
}

/* -- safe points ------------------------------------------------------------------------ */

/* System calls that the allocator and the loader make with their locks held. */
static bool locks_call(long nr)
{
	switch (nr) {
	case SYS_mmap:
	case SYS_munmap:
	case SYS_mremap:
	case SYS_mprotect:
	case SYS_madvise:
	case SYS_brk:
	case SYS_clone:
	case SYS_clone3:
	case SYS_fork:
	case SYS_vfork:
	case SYS_execve:
	case SYS_execveat:
	case SYS_exit:
	case SYS_exit_group:
	case SYS_rt_sigreturn:
		return true;
	default:
		return false;
	}
}

/* A stack grows for what is written through the file, not for process_vm_writev. */
static bool write_memory(pid_t pid, uint64_t at, const void *from, size_t n)
{
	struct iovec here = { (void *)(uintptr_t)from, n }, there = { (void *)(uintptr_t)at, n };
	char path[64];
	if (process_vm_writev(pid, &here, 1, &there, 1, 0) == (ssize_t)n)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && pwrite(fd, from, n, (off_t)at) == (ssize_t)n;
	if (fd >= 0)
		close(fd);
	return done;
}

static bool in_any(const struct range *list, uint32_t n, uint64_t at)
{
	for (uint32_t i = 0; i < n; i++)
		if (in(&list[i], at))
			return true;
	return false;
}

/* Whether the stopped thread still has the code that we have found: between the look and the stop the process may have begun another
 * program. Stopped, it cannot. */
static bool same_code(const struct thread *t, const struct code *c)
{
	uint8_t code[sizeof(c->dlopen_code)], restore[sizeof(code_restore)];
	/* The first byte may be a breakpoint, as a uprobe's. */
	return read_memory(t->pid, c->dlopen, code, sizeof(code)) == sizeof(code) &&
	       !memcmp(code + 1, c->dlopen_code + 1, sizeof(code) - 1) &&
	       read_memory(t->pid, c->restore_rt, restore, sizeof(restore)) == sizeof(restore) &&
	       !memcmp(restore, code_restore, sizeof(restore));
}

/* A word of its stack that leads back into a function that may hold a lock. Words that are left from calls that are over look
 * alike, so it is not asked about what cannot be: who holds an allocator's locks neither runs the program's code nor waits for
 * anything but a lock, or is a signal's handler that came in between. */
static bool leads_into_lock(const struct thread *t, const struct code *c, uint64_t word, bool handler)
{
	bool locks = handler || t->call == SYS_futex;
	if (in_any(c->locked, c->n_locked, word))
		return true;
	if (locks && (in_any(c->brief, c->n_brief, word) || in(&c->allocator, word)))
		return true;
	return (locks || t->call < 0) && in_any(c->family, c->n_family, word);
}

/* A signal's frame at this place of a stack: where the handler came in between, which is false for what only looks like one. */
static bool interrupted_at(const struct thread *t, uint64_t frame, greg_t regs[NGREG])
{
	ucontext_t u;
	if (read_memory(t->pid, frame + 8, &u, sizeof(u)) != sizeof(u) || (u.uc_mcontext.gregs[REG_CSGSFS] & 0xffff) != 0x33)
		return false;
	memcpy(regs, u.uc_mcontext.gregs, sizeof(u.uc_mcontext.gregs));
	return true;
}

/* Whether the C library's code was left there within a system call, and not anywhere. */
static bool at_call(const struct thread *t, uint64_t rip)
{
	uint8_t code[4];
	return read_memory(t->pid, rip - 2, code, sizeof(code)) == sizeof(code) && (!memcmp(code, "\x0f\x05", 2) || !memcmp(code + 2, "\x0f\x05", 2));
}

static bool unsafe_at(const struct thread *t, const struct code *c, uint64_t rip, bool call)
{
	return in(&c->loader, rip) || in(&c->allocator, rip) || (!call && (in(&c->libc, rip) || in(&c->vdso, rip))) ||
	       in_any(c->locked, c->n_locked, rip) || in_any(c->brief, c->n_brief, rip) || in_any(c->family, c->n_family, rip);
}

/* Whether the functions that it is in may hold a lock, as far as its stack tells from `at` on. `strict`: nor is there a word of the
 * loader's; but those lie about wherever a function has been called for the first time, and whoever waits inside the loader came through
 * one of its functions' doors. Behind a signal's frame its handler came in between, wherever that was, on a stack that may be another. */
static bool stack_holds(const struct thread *t, const struct code *c, uint64_t at, bool strict, int handlers)
{
	uint64_t words[STACK_SEEN / 8];
	size_t want = sizeof(words);
	ssize_t got;
	greg_t regs[NGREG];
	while ((got = read_memory(t->pid, at, words, want)) <= 0 && want > 512)
		want /= 2;
	if (got <= 0)
		return true;
	for (size_t i = 0; i < (size_t)got / 8; i++) {
		if (strict && i < 128 && in(&c->loader, words[i]))
			return true;
		if (leads_into_lock(t, c, words[i], handlers > 0))
			return true;
		if (words[i] == c->restore_rt && interrupted_at(t, at + i * 8, regs))
			return unsafe_at(t, c, (uint64_t)regs[REG_RIP], at_call(t, (uint64_t)regs[REG_RIP])) || handlers == HANDLERS ||
			       stack_holds(t, c, (uint64_t)regs[REG_RSP], strict, handlers + 1);
	}
	return false;
}

/* In a system call the thread is where it chose to wait; outside of one it must be in code of the
 * program's own. */
static bool safe(const struct thread *t, const struct code *c, bool strict)
{
	if (t->regs.cs != 0x33 || locks_call(t->call) || unsafe_at(t, c, t->regs.rip, t->call >= 0))
		return false;
	return !stack_holds(t, c, t->regs.rsp, strict, 0);
}

/* In a system call with a time limit, which needs us for its return: tens of stops, where others need one. */
static bool timed(const struct thread *t)
{
	return t->call >= 0 && (long)t->regs.rax == E_RESTART_BLOCK;
}

/* A stopped thread at a safe point. Threads are looked at in turn until one is; for a moment, only those that
 * are soon given back. */
static int find_thread(
	struct thread *t, const struct code *c, struct inject_result *r, struct diag *d)
{
	char path[64];
	uint64_t begun = now_ns();
	/* Tests of the long way want it at once. */
	uint64_t prefer = getenv("EGPU_INJECT_DIE_AT") ? 0 : (uint64_t)PREFER_MS * 1000000;
	int err = -EAGAIN;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)t->pid);
	while (now_ns() - begun < (uint64_t)TRIES_MS * 1000000) {
		DIR *list = opendir(path);
		if (!list)
			return diag_set(d, ESRCH, "process %d has ended", (int)t->pid);
		for (struct dirent *e; (e = readdir(list));) {
			t->tid = (pid_t)strtol(e->d_name, NULL, 10);
			if (t->tid <= 0 || look_waits(t->pid, t->tid))
				continue;
			r->tries++;
			err = stop(t);
			if (err == -EPERM || err == -EACCES)
				break;
			if (err)
				continue;
			err = seccomp_allows(t->tid, d);
			if (!err && !same_code(t, c))
				err = diag_set(d, ESTALE, "process %d has begun another program meanwhile; try again", (int)t->pid);
			bool late = now_ns() - begun > prefer;
			if (!err && (late || !timed(t)) && safe(t, c, now_ns() - begun < STRICT_NS)) {
				r->waited_ns = t->stopped_ns - begun;
				closedir(list);
				return 0;
			}
			let_go(t->tid, 0);
			r->paused_ns += now_ns() - t->stopped_ns;
			if (err)
				break;
			err = -EAGAIN;
		}
		closedir(list);
		if (err && err != -EAGAIN && err != -ESRCH)
			break;
		nap_us(700);
	}
	if (d->err)
		return err;
	if (err == -EPERM && look_tracer(t->pid, t->tid, d))
		return -EBUSY;
	if (err == -EPERM || err == -EACCES)
		return diag_set(d, EPERM,
			"process %d may not be traced: it belongs to another user, or "
			"/proc/sys/kernel/yama/ptrace_scope forbids it (as root it works)",
			(int)t->pid);
	return diag_set(d, EAGAIN,
		"no thread of process %d came to a point where it is safe to borrow it; try again",
		(int)t->pid);
}

/* -- the frame --------------------------------------------------------------------------- */

/* How the kernel ends a system call that a signal's handler has interrupted. */
static void interrupted(struct user_regs_struct *r)
{
	if ((long)r->orig_rax < 0)
		return;
	switch ((long)r->rax) {
	case E_RESTART_SYS:
	case E_RESTART_NOINTR:
	case E_RESTART_NOHAND:
		r->rax = r->orig_rax;
		r->rip -= 2;
		break;
	case E_RESTART_BLOCK:
		r->rax = (unsigned long)-EINTR;
		break;
	}
}

static void fill_context(ucontext_t *u, const struct thread *t, uint64_t state_at)
{
	struct user_regs_struct r = t->regs;
	interrupted(&r);
	memset(u, 0, sizeof(*u));
	u->uc_flags = FRAME_FLAGS;
	u->uc_stack.ss_flags = 0x7f; /* not valid: the kernel leaves its signal stack alone */
	greg_t *g = u->uc_mcontext.gregs;
	g[REG_R8] = (greg_t)r.r8;
	g[REG_R9] = (greg_t)r.r9;
	g[REG_R10] = (greg_t)r.r10;
	g[REG_R11] = (greg_t)r.r11;
	g[REG_R12] = (greg_t)r.r12;
	g[REG_R13] = (greg_t)r.r13;
	g[REG_R14] = (greg_t)r.r14;
	g[REG_R15] = (greg_t)r.r15;
	g[REG_RDI] = (greg_t)r.rdi;
	g[REG_RSI] = (greg_t)r.rsi;
	g[REG_RBP] = (greg_t)r.rbp;
	g[REG_RBX] = (greg_t)r.rbx;
	g[REG_RDX] = (greg_t)r.rdx;
	g[REG_RAX] = (greg_t)r.rax;
	g[REG_RCX] = (greg_t)r.rcx;
	g[REG_RSP] = (greg_t)r.rsp;
	g[REG_RIP] = (greg_t)r.rip;
	g[REG_EFL] = (greg_t)r.eflags;
	g[REG_CSGSFS] = (greg_t)((uint64_t)r.cs | (uint64_t)r.ss << 48);
	u->uc_mcontext.fpregs = (fpregset_t)(uintptr_t)state_at;
	memcpy(&u->uc_sigmask, &t->mask, sizeof(t->mask));
}

/* ptrace's form of the extended state is a signal frame's but for the words that describe it. */
static size_t fill_state(uint8_t *to, const struct thread *t)
{
	uint32_t n = (uint32_t)t->state_bytes, magic1 = FP_MAGIC1, magic2 = FP_MAGIC2,
		 whole = n + 4;
	uint64_t features;
	memcpy(to, t->state, n);
	memcpy(&features, to + FP_SW_AT, sizeof(features));
	memset(to + FP_SW_AT, 0, 48);
	memcpy(to + FP_SW_AT, &magic1, 4);
	memcpy(to + FP_SW_AT + 4, &whole, 4);
	memcpy(to + FP_SW_AT + 8, &features, 8);
	memcpy(to + FP_SW_AT + 16, &n, 4);
	memcpy(to + n, &magic2, 4);
	return whole;
}

static void note_errno(struct thread *t, const struct code *c)
{
	int64_t offset = 0;
	t->errno_at = 0;
	if (!c->errno_slot || !t->regs.fs_base ||
		read_memory(t->pid, c->errno_slot, &offset, sizeof(offset)) != sizeof(offset) || offset >= 0 ||
		offset < -(1 << 24))
		return;
	uint64_t at = t->regs.fs_base + (uint64_t)offset;
	if (read_memory(t->pid, at, &t->errno_was, sizeof(t->errno_was)) == sizeof(t->errno_was))
		t->errno_at = at;
}

/* What the stack holds from the call's return address on. */
struct frame {
	uint64_t back;
	ucontext_t context;
};

/* One return from a signal, at *at or below, which becomes its place. */
static bool put_frame(const struct thread *t, const struct code *c, struct frame *f, uint64_t *at)
{
	f->back = c->restore_rt;
	*at = ((*at - sizeof(f->context)) & ~(uint64_t)15) - 8;
	return write_memory(t->pid, *at, f, sizeof(*f));
}

/* Registers of the call, its frames in place. `stay`: we shall be there when it returns. */
static int make_frame(const struct thread *t, const struct code *c, const char *library, bool stay,
	struct user_regs_struct *call)
{
	static uint8_t state[STATE_MAX + 8];
	size_t path = strlen(library) + 1, whole = fill_state(state, t);
	uint64_t at = t->regs.rsp - RED_ZONE - path, path_at = at;
	at = (at - whole) & ~(uint64_t)63;
	uint64_t state_at = at;
	struct frame frame;
	fill_context(&frame.context, t, state_at);
	if (!write_memory(t->pid, path_at, library, path) || !write_memory(t->pid, state_at, state, whole) ||
		!put_frame(t, c, &frame, &at))
		return -EFAULT;
	/* Before it another, into code that stores errno and returns into the first one. */
	if (!stay && t->errno_at && c->store) {
		greg_t *g = frame.context.uc_mcontext.gregs;
		g[REG_RIP] = (greg_t)c->store;
		g[REG_RDI] = (greg_t)t->errno_at;
		g[REG_RSI] = g[REG_RDX] = g[REG_RCX] = (greg_t)t->errno_was;
		g[REG_RSP] = (greg_t)at;
		if (!put_frame(t, c, &frame, &at))
			return -EFAULT;
	}
	*call = t->regs;
	call->rsp = at;
	call->rip = c->dlopen;
	call->rdi = path_at;
	call->rsi = c->private_dlopen ? 0x80000002 : 2; /* RTLD_NOW */
	call->rax = 0;
	call->orig_rax = (unsigned long)-1;
	call->eflags &= ~(unsigned long)0x500; /* direction, trap */
	return 0;
}

/* -- the call ----------------------------------------------------------------------------- */

/* Lets it run to the entry of rt_sigreturn on our frame. */
static int run_call(const struct thread *t, uint64_t frame)
{
	uint64_t end = now_ns() + (uint64_t)CALL_MS * 1000000;
	int signal = 0, status;
	while (now_ns() < end) {
		struct user_regs_struct r;
		if (ptrace(PTRACE_SYSCALL, t->tid, NULL, (void *)(intptr_t)signal))
			return -errno;
		inject_step("running");
		int err = wait_stop(t->tid, CALL_MS, &status);
		if (err)
			return err;
		signal = 0;
		if (event_stop(status))
			continue;
		if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
			signal = WSTOPSIG(status);
			continue;
		}
		if (ptrace(PTRACE_GETREGS, t->tid, NULL, &r))
			return -errno;
		if ((long)r.orig_rax == SYS_rt_sigreturn && r.rsp == frame + 8)
			return 0;
	}
	return -ETIMEDOUT;
}

/* At the entry of rt_sigreturn: the call is skipped and the thread sent back to make it again, but
 * it stops on the way, at a point from which interrupted system calls are taken up again. Should we
 * be killed at any moment of this, it does make the call. */
static int put_back(const struct thread *t, const struct code *c)
{
	int status;
	struct user_regs_struct r;
	inject_step("returned");
	if (ptrace(PTRACE_GETREGS, t->tid, NULL, &r))
		return -errno;
	r.orig_rax = (unsigned long)-1;
	r.rip = c->restore_rt;
	if (ptrace(PTRACE_SETREGS, t->tid, NULL, &r) ||
		ptrace(PTRACE_INTERRUPT, t->tid, NULL, NULL))
		return -EIO;
	inject_step("skipped");
	if (ptrace(PTRACE_CONT, t->tid, NULL, NULL) || wait_stop(t->tid, CALL_MS, &status))
		return -EIO;
	if (!event_stop(
		    status)) { /* a signal came first: it finds a thread that is on its way back */
		let_go(t->tid, WSTOPSIG(status));
		return 0;
	}
	struct iovec io = { (void *)(uintptr_t)t->state, t->state_bytes };
	if (t->errno_at)
		write_memory(t->pid, t->errno_at, &t->errno_was, sizeof(t->errno_was));
	if (ptrace(PTRACE_SETREGSET, t->tid, XSTATE_SET, &io) ||
		ptrace(PTRACE_SETREGS, t->tid, NULL, &t->regs))
		return -EIO;
	inject_step("restored");
	let_go(t->tid, 0);
	return 0;
}

static int borrow(const struct inject_target *target, const char *library, struct inject_result *r,
	struct diag *d)
{
	static struct thread t;
	struct code c;
	struct user_regs_struct call;
	memset(r, 0, sizeof(*r));
	t.pid = target->pid;
	int err = code_find(target, &c, d);
	if (!err)
		err = find_thread(&t, &c, r, d);
	if (err)
		return err;
	ptrace(PTRACE_SETOPTIONS, t.tid, NULL, (void *)PTRACE_O_TRACESYSGOOD);
	bool stay = timed(&t);
	note_errno(&t, &c);
	err = make_frame(&t, &c, library, stay, &call);
	inject_step("framed");
	if (err || ptrace(PTRACE_SETREGS, t.tid, NULL, &call)) {
		let_go(t.tid, 0);
		return diag_set(d, EFAULT, "process %d: its stack cannot be written", (int)t.pid);
	}
	inject_step("set");
	err = stay ? run_call(&t, call.rsp) : 0;
	if (stay && !err)
		err = put_back(&t, &c);
	if (!stay || err)
		let_go(t.tid, 0);
	r->paused_ns += now_ns() - t.stopped_ns;
	inject_step("done");
	return err ? diag_set(d, -err, "process %d: the borrowed thread did not come back (%s)",
			     (int)t.pid, strerror(-err))
		   : 0;
}

int inject_library(const struct inject_target *target, const char *library, struct inject_result *r,
	struct diag *d)
{
	sigset_t child, old;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, &old);
	int err = borrow(target, library, r, d);
	sigprocmask(SIG_SETMASK, &old, NULL);
	return err;
}

#else

int inject_library(const struct inject_target *target, const char *library, struct inject_result *r,
	struct diag *d)
{
	return diag_set(d, ENOTSUP, "attaching to a running process works on x86-64 only");
}

#endif
