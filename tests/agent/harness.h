/* harness.h - runs this very program again as a target under the agent, with a session of its own
 * on softgpu.
 *
 * A test's main calls harness_main with its roles: a role is a small driver-API program, run in a
 * child process by its name. The parent makes the session, hangs fragments in it, starts the role
 * and looks at what the session holds afterwards.
 */
#ifndef EGPU_TEST_HARNESS_H
#define EGPU_TEST_HARNESS_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bpf/fragment.h"
#include "egpu/cuda.h"
#include "map/map.h"
#include "map/session.h"
#include "tap.h"

#ifndef AGENT_LIB
#error "AGENT_LIB and SOFTGPU_LIB name the libraries under test"
#endif

struct role {
	const char *name;
	int (*run)(void);
};

struct run {
	struct session *session;
	struct session_file *file;
	const char *library_path; /* with no_alias: the whole LD_LIBRARY_PATH */
	bool no_alias;            /* the session's driver link is left out */
	bool no_agent;            /* nothing is preloaded */
	const char *agent;        /* preloaded instead of AGENT_LIB */
	const char *env[16];      /* "NAME=VALUE" more for the target; NULL-ended */
	int status;               /* of waitpid */
};

/* -- session ------------------------------------------------------------------ */

static inline void run_begin(struct run *r)
{
	struct diag d = { 0 };
	char path[512];
	memset(r, 0, sizeof(*r));
	if (session_create(&r->session, &d)) {
		printf("Bail out! %s\n", d.text);
		exit(1);
	}
	r->file = session_data(r->session);
	snprintf(path, sizeof(path), "%s/libegpu-driver.so.1", session_path(r->session));
	if (symlink(SOFTGPU_LIB, path))
		printf("# cannot make %s\n", path);
}

#ifdef SHIM_LIB
/* Puts shim.c between the agent and softgpu. */
static inline void run_use_shim(struct run *r)
{
	static const struct {
		const char *name, *to;
	} links[] = { { "libegpu-driver.so.1", SHIM_LIB },
		{ "libegpu-shim-target.so.1", SOFTGPU_LIB } };
	char path[512];
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", session_path(r->session), links[i].name);
		unlink(path);
		if (symlink(links[i].to, path))
			printf("# cannot make %s\n", path);
	}
}
#endif

static inline void run_end(struct run *r)
{
	session_destroy(r->session);
}

static inline uint32_t run_map(
	struct run *r, uint32_t type, uint32_t key, uint32_t value, uint32_t entries)
{
	struct ebpf_map def = { .name = "counts",
		.type = type,
		.key_size = key,
		.value_size = value,
		.max_entries = entries };
	struct diag d = { 0 };
	uint32_t id = 0;
	if (session_add_map(r->session, &def, &id, &d))
		printf("Bail out! %s\n", d.text);
	return id;
}

/* Attaches a fragment to the kernels that match. */
static inline uint32_t run_attach(struct run *r, struct ebpf_fragment *f, const char *pattern)
{
	struct buf text = { 0 };
	struct diag d = { 0 };
	uint32_t prog = 0, link = 0;
	ebpf_fragment_print(f, &text);
	if (session_add_prog(
		    r->session, text.data, text.len, f->name, f->point, f->warp, &prog, &d) ||
		session_add_link(r->session, prog, f->point, f->warp, pattern, &link, &d))
		printf("Bail out! %s\n", d.text);
	buf_free(&text);
	return link;
}

/* A fragment that adds 1 to value 0 of array map `map`, at every run. */
static inline struct ebpf_fragment counter(uint32_t map, enum ebpf_point point)
{
	static char bodies[8][400];
	static int next;
	char *body = bodies[next++ % 8];
	snprintf(body, sizeof(bodies[0]),
		"{\n\t.reg .b64 %%egpu_r<1>;\n\tld.const.b64 %%egpu_r0, [__egpu_table+%u];\n"
		"\tred.global.add.u64 [%%egpu_r0+128], 1;\n}\n",
		map * 8);
	return (struct ebpf_fragment){ .name = "count",
		.point = point,
		.maps = (uint64_t)1 << map,
		.max_insns = 3,
		.body = body };
}

/* A run with a counter at the entries of such kernels: its map. */
static inline uint32_t run_begin_counted(struct run *r, const char *pattern)
{
	run_begin(r);
	uint32_t map = run_map(r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment f = counter(map, EBPF_POINT_ENTRY);
	run_attach(r, &f, pattern);
	return map;
}

static inline uint64_t run_count(struct run *r, uint32_t map, uint32_t key)
{
	struct map *m;
	struct diag d = { 0 };
	uint64_t value = 0;
	if (map_open(r->session, map, &m, &d)) {
		printf("# %s\n", d.text);
		return UINT64_MAX;
	}
	if (map_lookup(m, &key, &value))
		value = UINT64_MAX;
	map_close(m);
	return value;
}

/* The row of a kernel, or NULL. */
static inline struct session_kernel *run_kernel(struct run *r, const char *name)
{
	for (uint32_t i = 0; i < r->file->n_kernels && i < SESSION_MAX_KERNELS; i++)
		if (!strcmp(session_text(r->session, r->file->kernels[i].name), name))
			return &r->file->kernels[i];
	return NULL;
}

/* -- target ------------------------------------------------------------------- */

extern char **environ;

static inline void run_child(struct run *r, const char *role)
{
	char dir[512], path[1100];
	snprintf(dir, sizeof(dir), "%s", session_path(r->session));
	if (r->no_alias)
		snprintf(
			dir, sizeof(dir), "%s", r->library_path ? r->library_path : "/nonexistent");
	const char *more = getenv("LD_LIBRARY_PATH");
	snprintf(path, sizeof(path), "%s%s%s", dir, more && !r->no_alias ? ":" : "",
		more && !r->no_alias ? more : "");
	setenv("LD_LIBRARY_PATH", path, 1);
	setenv(SESSION_ENV, session_path(r->session), 1);
	/* A sanitized program's runtime must come before us; leaks of a process that ends are not
	 * the question here. */
	setenv("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0:abort_on_error=0", 1);
	setenv("EGPU_SOFTGPU_QUIET", "1", 1);
	for (int i = 0; i < 16 && r->env[i]; i++)
		putenv((char *)(uintptr_t)r->env[i]);
	setenv("EGPU_CACHE", "off", 0);
	if (!r->no_agent)
		setenv("LD_PRELOAD", r->agent ? r->agent : AGENT_LIB, 1);
	execl("/proc/self/exe", "target", role, (char *)NULL);
	_exit(126);
}

static inline pid_t run_start(struct run *r, const char *role)
{
	fflush(stdout);
	pid_t pid = fork();
	if (!pid)
		run_child(r, role);
	return pid;
}

/* Waits at most `seconds`; a target that hangs is killed and counts as status -1. */
static inline int run_wait(struct run *r, pid_t pid, int seconds)
{
	for (int i = 0; i < seconds * 100; i++) {
		if (waitpid(pid, &r->status, WNOHANG) == pid) {
			if (WIFEXITED(r->status))
				return WEXITSTATUS(r->status);
			printf("# target ended by signal %d\n", WTERMSIG(r->status));
			return 1000 + WTERMSIG(r->status);
		}
		usleep(10000);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &r->status, 0);
	printf("# target did not end in %d seconds\n", seconds);
	return -1;
}

static inline int run_role(struct run *r, const char *role)
{
	return run_wait(r, run_start(r, role), 60);
}

/* First in main: in a target, runs the role and exits. */
static inline void harness_main(int argc, char **argv, const struct role *roles)
{
	if (argc < 2)
		return;
	for (const struct role *x = roles; x->name; x++)
		if (!strcmp(x->name, argv[1]))
			exit(x->run());
	exit(125);
}

/* -- driver-API programs ----------------------------------------------------------- */

/* Any failure ends the role with the line as its status. */
#define CU(call)                                                                                   \
	do {                                                                                       \
		CUresult cu_result = (call);                                                       \
		if (cu_result != CUDA_SUCCESS) {                                                   \
			printf("# line %d: %s gave %d\n", __LINE__, #call, (int)cu_result);        \
			fflush(stdout);                                                            \
			exit(99);                                                                  \
		}                                                                                  \
	} while (0)

static inline CUcontext target_context(void)
{
	CUdevice dev;
	CUcontext ctx;
	CU(cuInit(0));
	CU(cuDeviceGet(&dev, 0));
	CU(cuDevicePrimaryCtxRetain(&ctx, dev));
	CU(cuCtxSetCurrent(ctx));
	return ctx;
}

/* out[i] = i + add for i < n. */
#define PTX_HEAD ".version 7.0\n.target sm_75\n.address_size 64\n"
#define PTX_FILL(name)                                                                             \
	".visible .entry " name "(.param .u64 out, .param .u32 add, .param .u32 n)\n"              \
	"{\n\t.reg .pred %p<2>;\n\t.reg .b32 %r<8>;\n\t.reg .b64 %rd<4>;\n"                        \
	"\tld.param.u64 %rd1, [out];\n\tld.param.u32 %r1, [add];\n\tld.param.u32 %r2, [n];\n"      \
	"\tmov.u32 %r3, %ctaid.x;\n\tmov.u32 %r4, %ntid.x;\n\tmov.u32 %r5, %tid.x;\n"              \
	"\tmad.lo.s32 %r6, %r3, %r4, %r5;\n\tsetp.ge.u32 %p1, %r6, %r2;\n\t@%p1 bra DONE;\n"       \
	"\tadd.u32 %r7, %r6, %r1;\n\tmul.wide.u32 %rd2, %r6, 4;\n\tadd.u64 %rd3, %rd1, %rd2;\n"    \
	"\tst.global.u32 [%rd3], %r7;\nDONE:\n\tret;\n}\n"

/* Whether buf[i] == i + add. */
static inline int check_fill(CUdeviceptr buf, uint32_t add, uint32_t n)
{
	uint32_t *host = malloc(n * 4);
	CU(cuMemcpyDtoH(host, buf, n * 4));
	for (uint32_t i = 0; i < n; i++)
		if (host[i] != i + add) {
			printf("# element %u is %u\n", i, host[i]);
			free(host);
			return 1;
		}
	free(host);
	return 0;
}

#endif
