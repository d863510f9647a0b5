/* kernel_load.c - see kernel.h. No library: bpf(2) and capset(2) as they are. */
#include "kernel.h"

#include "bpf/insns.h"

#include <errno.h>
#include <linux/btf.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LOG_BYTES = 1 << 18, MAX_FUNCS = 64, PROLOGUE = 3 };

static char log_text[LOG_BYTES];
static int map_fd[EBPF_MAX_MAPS + 1], n_map_fds; /* the last one: the buffer of a test-run program */
static const struct ebpf_map *mapped;

static int sys_bpf(int cmd, union bpf_attr *attr)
{
	return (int)syscall(SYS_bpf, cmd, attr, sizeof(*attr));
}

static int make_map(const struct ebpf_map *m)
{
	union bpf_attr a = { .map_type = m->type, .key_size = m->key_size, .value_size = m->value_size, .max_entries = m->max_entries, .map_flags = m->flags };
	return sys_bpf(BPF_MAP_CREATE, &a);
}

void kernel_release(void)
{
	while (n_map_fds)
		close(map_fd[--n_map_fds]);
	mapped = NULL;
}

/* The maps of one program after another are mostly the same: making them takes longer than a verdict. */
static int make_maps(const struct ebpf_program *p)
{
	if (n_map_fds && mapped == p->maps)
		return 0;
	kernel_release();
	const struct ebpf_map buffer = { .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = p->memory_bytes ? p->memory_bytes : 64, .max_entries = 1 };
	for (uint32_t k = 0; k <= p->n_maps; k++) {
		int fd = make_map(k < p->n_maps ? &p->maps[k] : &buffer);
		if (fd < 0)
			return -errno;
		map_fd[n_map_fds++] = fd;
	}
	mapped = p->maps;
	return 0;
}

/* The smallest type data that lets functions be passed to helpers: each is `static int f(void)`. */
struct types {
	struct btf_header head;
	struct btf_type number;
	uint32_t number_bits;
	struct btf_type proto;
	struct btf_type func;
	char strings[8];
};

static const struct types types = {
	.head = { .magic = BTF_MAGIC, .version = BTF_VERSION, .hdr_len = sizeof(struct btf_header),
		.type_len = 3 * sizeof(struct btf_type) + 4, .str_off = 3 * sizeof(struct btf_type) + 4, .str_len = 8 },
	.number = { .name_off = 1, .info = BTF_KIND_INT << 24, .size = 4 },
	.number_bits = BTF_INT_SIGNED << 24 | 32,
	.proto = { .info = BTF_KIND_FUNC_PROTO << 24, .type = 1 },
	.func = { .name_off = 5, .info = BTF_KIND_FUNC << 24 | BTF_FUNC_STATIC, .type = 2 },
	.strings = "\0int\0fn",
};

static int by_offset(const void *a, const void *b)
{
	const struct bpf_func_info *x = a, *y = b;
	return x->insn_off < y->insn_off ? -1 : x->insn_off > y->insn_off;
}

/* Where functions start; *refs: some are passed to helpers. */
static uint32_t functions(const struct bpf_insn *code, uint32_t n, struct bpf_func_info out[MAX_FUNCS], bool *refs)
{
	uint32_t count = 1, unique = 1;
	out[0] = (struct bpf_func_info){ 0, 3 };
	*refs = false;
	for (uint32_t k = 0; k < n; k++) {
		bool call = code[k].code == (BPF_JMP | BPF_CALL) && code[k].src_reg == BPF_PSEUDO_CALL;
		bool ref = code[k].code == (BPF_LD | BPF_IMM | BPF_DW) && code[k].src_reg == BPF_PSEUDO_FUNC;
		*refs |= ref;
		if ((call || ref) && count < MAX_FUNCS)
			out[count++] = (struct bpf_func_info){ k + 1 + (uint32_t)code[k].imm, 3 };
	}
	qsort(out, count, sizeof(*out), by_offset);
	for (uint32_t k = 1; k < count; k++)
		if (out[k].insn_off != out[unique - 1].insn_off)
			out[unique++] = out[k];
	return unique;
}

/* r1 = the buffer, r2 = its size; and maps by their descriptors. */
static struct bpf_insn *translated(const struct ebpf_program *p, uint32_t *n)
{
	uint32_t before = p->context == EBPF_CONTEXT_NONE ? PROLOGUE : 0;
	struct bpf_insn *out = calloc(p->n_insns + PROLOGUE, sizeof(*out));
	if (!out)
		return NULL;
	if (before) {
		out[0] = (struct bpf_insn){ .code = BPF_LD | BPF_IMM | BPF_DW, .dst_reg = 1, .src_reg = BPF_PSEUDO_MAP_VALUE, .imm = map_fd[p->n_maps] };
		out[2] = (struct bpf_insn){ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 2, .imm = (int32_t)p->memory_bytes };
	}
	memcpy(out + before, p->insns, p->n_insns * sizeof(*out));
	*n = p->n_insns + before;
	for (uint32_t k = before; k < *n; k++) {
		bool map = out[k].code == (BPF_LD | BPF_IMM | BPF_DW) && (out[k].src_reg == BPF_PSEUDO_MAP_FD || out[k].src_reg == BPF_PSEUDO_MAP_VALUE);
		if (map && (uint32_t)out[k].imm < p->n_maps)
			out[k].imm = map_fd[out[k].imm];
	}
	return out;
}

static int load_types(void)
{
	static int fd = -1;
	if (fd < 0) {
		union bpf_attr a = { .btf = (uint64_t)(uintptr_t)&types, .btf_size = sizeof(types.head) + types.head.type_len + types.head.str_len };
		fd = sys_bpf(BPF_BTF_LOAD, &a);
	}
	return fd;
}

/* The line of the log before the kernel's statistics. */
static void last_line(char *why, size_t bytes)
{
	static const char *const untold[] = { "processed ", "verification time", "stack depth", "cur state:", "old state:" };
	static char none[] = "";
	char *line = log_text, *found = none;
	for (char *next; line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		bool told = *line;
		for (size_t k = 0; k < sizeof(untold) / sizeof(untold[0]); k++)
			told &= strncmp(line, untold[k], strlen(untold[k])) != 0;
		if (told)
			found = line;
	}
	snprintf(why, bytes, "%s", found);
}

static int load(const struct kernel_program *k, char *why, size_t why_bytes)
{
	struct bpf_func_info funcs[MAX_FUNCS];
	bool refs;
	uint32_t n;
	struct bpf_insn *code = translated(k->program, &n);
	if (!code)
		return -ENOMEM;
	union bpf_attr a = { .prog_type = k->type, .insns = (uint64_t)(uintptr_t)code, .insn_cnt = n, .license = (uint64_t)(uintptr_t)"GPL",
		.prog_flags = k->flags, .log_level = 1, .log_size = LOG_BYTES, .log_buf = (uint64_t)(uintptr_t)log_text };
	uint32_t n_funcs = functions(code, n, funcs, &refs);
	if (refs) {
		a.prog_btf_fd = (uint32_t)load_types();
		a.func_info_rec_size = sizeof(funcs[0]);
		a.func_info = (uint64_t)(uintptr_t)funcs;
		a.func_info_cnt = n_funcs;
	}
	log_text[0] = '\0';
	int fd = sys_bpf(BPF_PROG_LOAD, &a);
	if (fd < 0 && errno == ENOSPC) { /* the log was cut, which says nothing of the verdict */
		a.log_level = a.log_size = 0;
		a.log_buf = 0;
		fd = sys_bpf(BPF_PROG_LOAD, &a);
	}
	int err = fd < 0 ? -errno : 0;
	free(code);
	if (fd >= 0)
		close(fd);
	last_line(why, why_bytes);
	return err;
}

/* Of the effective capabilities only CAP_BPF, or all that there were. */
static bool privilege(enum kernel_privilege as)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];
	if (syscall(SYS_capget, &head, caps))
		return false;
	for (int k = 0; k < 2; k++)
		caps[k].effective = as == KERNEL_ROOT ? caps[k].permitted : k == CAP_BPF / 32 ? caps[k].permitted & 1u << CAP_BPF % 32 : 0;
	return !syscall(SYS_capset, &head, caps);
}

int kernel_verdict(const struct kernel_program *k, enum kernel_privilege as, char *why, size_t why_bytes)
{
	int err = make_maps(k->program);
	if (err) {
		snprintf(why, why_bytes, "the kernel makes no such map (%s)", strerror(-err));
		return 1;
	}
	if (as == KERNEL_PLAIN && !privilege(as)) {
		snprintf(why, why_bytes, "capabilities cannot be given up");
		return 1;
	}
	err = load(k, why, why_bytes);
	if (as == KERNEL_PLAIN)
		privilege(KERNEL_ROOT);
	return err;
}

const char *kernel_missing(void)
{
	static char text[160];
	struct bpf_insn code[] = { { .code = BPF_ALU64 | BPF_MOV | BPF_K }, { .code = BPF_JMP | BPF_EXIT } };
	struct ebpf_program p = { .insns = code, .n_insns = 2, .context = EBPF_CONTEXT_MEM };
	struct kernel_program k = { &p, BPF_PROG_TYPE_SOCKET_FILTER, 0 };
	char why[64];
	if (geteuid())
		return "only root may load programs";
	int err = kernel_verdict(&k, KERNEL_ROOT, why, sizeof(why));
	if (!err)
		err = kernel_verdict(&k, KERNEL_PLAIN, why, sizeof(why));
	kernel_release();
	if (!err && load_types() < 0)
		err = -errno;
	if (!err)
		return NULL;
	snprintf(text, sizeof(text), "the kernel loads no program: %s", err < 0 ? strerror(-err) : why);
	return text;
}
