/* Random programs that the verifier accepts give the same result, memory and map on softgpu as in
 * the interpreter.
 *
 * They load and store the stack in overlapping pieces, call functions with frames and pointers to
 * their caller's frame, have bpf_loop call one, jump forward, loop a few times, and read, add and write map values in every
 * order, so that slot allocation, dead code and the load-add-store idiom meet cases nobody thought
 * of.
 *
 * usage: translate_random [LIBRARY [PROGRAMS [SEED]]]
 */
#include "tap.h"

#include "bpf/helpers.h"
#include "bpf/insns.h"
#include "cpu/interp.h"
#include "device.h"
#include "map/map.h"
#include "translate/translate.h"

enum { BATCH = 64, MAX_INSNS = 600, MEMORY = 64, VALUE = 64, FRAME = 64, SCALARS = 6 };

static uint64_t state;

static uint32_t next(uint32_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)((state >> 11) % n);
}

struct program {
	struct bpf_insn insns[MAX_INSNS];
	uint32_t n;
	uint32_t calls[16], n_calls; /* places of calls to function 0 */
	uint32_t loops[8], n_loops;  /* places where bpf_loop is given function 1 */
	bool in_function;
	_Alignas(8) uint8_t memory[MEMORY];
	_Alignas(8) uint8_t value[VALUE];
};

static void put(struct program *p, uint8_t code, uint8_t dst, uint8_t src, int16_t off, int32_t imm)
{
	if (p->n < MAX_INSNS)
		p->insns[p->n++] = (struct bpf_insn){
			.code = code, .dst_reg = dst, .src_reg = src, .off = off, .imm = imm
		};
}

static void put_imm64(struct program *p, uint8_t dst, uint8_t src, uint64_t value)
{
	put(p, BPF_LD | BPF_IMM | BPF_DW, dst, src, 0, (int32_t)value);
	put(p, 0, 0, 0, 0, (int32_t)(value >> 32));
}

static int32_t some_imm(void)
{
	static const int32_t odd[] = { 0, 1, -1, 7, 8, 31, 32, 63, 64, 255, 256, 0x7fffffff,
		(int32_t)0x80000000 };
	return next(2) ? odd[next(13)] : (int32_t)((uint32_t)next(65536) << 16 | next(65536));
}

/* Registers that hold numbers at all times. */
static uint8_t scalar(void)
{
	static const uint8_t regs[SCALARS] = { 0, 2, 3, 4, 5, 9 };
	return regs[next(SCALARS)];
}

static void put_alu(struct program *p)
{
	static const uint8_t ops[] = { BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_OR, BPF_AND, BPF_LSH,
		BPF_RSH, BPF_NEG, BPF_MOD, BPF_XOR, BPF_MOV, BPF_ARSH, BPF_END, BPF_ADD, BPF_MOV };
	uint8_t op = ops[next(16)], class = next(2) ? BPF_ALU64 : BPF_ALU,
		src = next(2) ? BPF_X : BPF_K, dst = scalar();
	int32_t imm = src == BPF_K ? some_imm() : 0;
	int16_t off = 0;
	uint8_t from = src == BPF_X ? scalar() : 0;
	if (op == BPF_LSH || op == BPF_RSH || op == BPF_ARSH)
		imm = src == BPF_K ? (int32_t)next(class == BPF_ALU64 ? 64 : 32) : 0;
	if ((op == BPF_DIV || op == BPF_MOD) && src == BPF_K && !imm)
		imm = 3;
	if (op == BPF_DIV || op == BPF_MOD)
		off = (int16_t)next(2);
	if (op == BPF_MOV && src == BPF_X && !next(3))
		off = (int16_t)(8 << next(class == BPF_ALU64 ? 3 : 2));
	if (op == BPF_NEG) {
		src = BPF_K;
		imm = from = 0;
	}
	if (op == BPF_END) {
		src = class == BPF_ALU64 ? BPF_K : next(2) ? BPF_X : BPF_K;
		imm = 16 << next(3);
		from = 0;
	}
	put(p, class | op | src, dst, from, off, imm);
}

static const uint8_t sizes[] = { BPF_B, BPF_H, BPF_W, BPF_DW };

/* An aligned place of 2^size bytes in `bytes`; registers 6 and 7 point to the memory and the map's
 * value, 10 to the frame. */
static void put_access(struct program *p)
{
	uint8_t base = p->in_function ? (next(2) ? 10 : 1) : (uint8_t[]){ 6, 7, 10, 10 }[next(4)];
	uint32_t size = next(4);
	int16_t off = (int16_t)(next(FRAME >> size) << size);
	uint8_t reg = scalar();
	if (base == 10)
		off -= FRAME;
	if (base == 6 && !next(3)) /* the buffer at any alignment */
		off = (int16_t)next(MEMORY - (1u << size) + 1);
	switch (next(3)) {
	case 0:
		put(p, BPF_LDX | (size < 3 && next(3) == 0 ? 0x80 : BPF_MEM) | sizes[size], reg,
			base, off, 0);
		break;
	case 1:
		put(p, BPF_STX | BPF_MEM | sizes[size], base, reg, off, 0);
		break;
	default:
		put(p, BPF_ST | BPF_MEM | sizes[size], base, 0, off, some_imm());
	}
}

static void put_atomic(struct program *p)
{
	static const int32_t ops[] = { BPF_ADD, BPF_ADD | BPF_FETCH, BPF_OR, BPF_OR | BPF_FETCH,
		BPF_AND, BPF_AND | BPF_FETCH, BPF_XOR, BPF_XOR | BPF_FETCH, BPF_XCHG, BPF_CMPXCHG };
	uint8_t base = p->in_function ? 10 : (uint8_t[]){ 6, 7, 10 }[next(3)];
	uint32_t size = 2 + next(2);
	int16_t off = (int16_t)(next(FRAME >> size) << size);
	put(p, BPF_STX | BPF_ATOMIC | sizes[size], base, scalar(),
		base == 10 ? (int16_t)(off - FRAME) : off, ops[next(10)]);
}

/* Load, additions, copies, branches and other work, store: often the idiom, sometimes nearly. */
static void put_rmw(struct program *p)
{
	uint32_t size = 2 + next(2), jumps[4], n_jumps = 0;
	int16_t off = (int16_t)(next(3) << 3);
	uint8_t reg = scalar(), class = size == 3 || next(2) ? BPF_ALU64 : BPF_ALU;
	put(p, BPF_LDX | BPF_MEM | sizes[size], reg, 7, off, 0);
	for (uint32_t k = 1 + next(6); k; k--) {
		uint8_t add = next(3) ? BPF_ADD : BPF_SUB, other = scalar();
		switch (next(9)) {
		case 0:
			put_alu(p);
			break;
		case 1:
			put_access(p);
			break;
		case 2:
			put(p, BPF_ALU64 | BPF_MOV | BPF_X, other, reg, 0, 0);
			if (next(2))
				reg = other;
			break;
		case 3:
			put(p, class | BPF_ADD | BPF_X, other, reg, 0, 0);
			if (next(2))
				reg = other;
			break;
		case 4:
			if (n_jumps < 4) {
				jumps[n_jumps++] = p->n;
				put(p, BPF_JMP | BPF_JGT | BPF_K, other, 0, 0, some_imm());
			}
			break;
		case 5:
			put(p, class | add | BPF_X, reg, other, 0, 0);
			break;
		default:
			put(p, class | add | BPF_K, reg, 0, 0, some_imm());
		}
		if (n_jumps && next(2)) {
			n_jumps--;
			p->insns[jumps[n_jumps]].off = (int16_t)(p->n - jumps[n_jumps] - 1);
		}
	}
	uint32_t store = p->n;
	put(p, BPF_STX | BPF_MEM | sizes[size], 7, reg, off, 0);
	while (n_jumps) {
		n_jumps--;
		p->insns[jumps[n_jumps]].off =
			(int16_t)((next(2) ? store : p->n) - jumps[n_jumps] - 1);
	}
}

static void init_scalars(struct program *p, bool keep_r0)
{
	static const uint8_t regs[] = { 0, 2, 3, 4, 5, 9 };
	for (int k = keep_r0; k < SCALARS - keep_r0; k++)
		put(p, BPF_ALU64 | BPF_MOV | BPF_K, regs[k], 0, 0, some_imm());
	if (!keep_r0)
		put_imm64(p, 9, 0, state);
}

/* What a call leaves: r1..r5 are gone. */
static void put_call(struct program *p)
{
	if (p->in_function || p->n_calls == 16)
		return;
	put(p, BPF_ALU64 | BPF_MOV | BPF_X, 1, 10, 0, 0);
	put(p, BPF_ALU64 | BPF_ADD | BPF_K, 1, 0, 0, -FRAME);
	p->calls[p->n_calls++] = p->n;
	put(p, BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, 0);
	init_scalars(p, true);
	put(p, BPF_ALU64 | BPF_MOV | BPF_X, 9, 0, 0, 0);
}

/* bpf_loop over function 1, its context the frame as a call's, or 0; sometimes with flags or too often. */
static void put_bpf_loop(struct program *p)
{
	if (p->in_function || p->n_loops == 8)
		return;
	p->loops[p->n_loops++] = p->n;
	put_imm64(p, 2, BPF_PSEUDO_FUNC, 0);
	if (next(3))
		put(p, BPF_ALU64 | BPF_MOV | BPF_K, 1, 0, 0, (int32_t)next(7));
	else {
		put(p, BPF_ALU64 | BPF_MOV | BPF_X, 1, 9, 0, 0);
		put(p, BPF_ALU64 | BPF_AND | BPF_K, 1, 0, 0, 15);
	}
	put(p, BPF_ALU64 | BPF_MOV | BPF_X, 3, 10, 0, 0);
	put(p, BPF_ALU64 | BPF_ADD | BPF_K, 3, 0, 0, -FRAME);
	put(p, BPF_ALU64 | BPF_MOV | BPF_K, 4, 0, 0, next(8) == 0);
	put(p, BPF_JMP | BPF_CALL, 0, 0, 0, EBPF_FUNC_loop);
	init_scalars(p, true);
	put(p, BPF_ALU64 | BPF_MOV | BPF_X, 9, 0, 0, 0);
}

static void put_step(struct program *p);

static void put_branch(struct program *p)
{
	static const uint8_t ops[] = { BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET, BPF_JNE, BPF_JSGT,
		BPF_JSGE, BPF_JLT, BPF_JLE, BPF_JSLT, BPF_JSLE };
	uint8_t class = next(2) ? BPF_JMP : BPF_JMP32;
	uint32_t at = p->n;
	if (next(2))
		put(p, class | ops[next(11)] | BPF_K, scalar(), 0, 0, some_imm());
	else
		put(p, class | ops[next(11)] | BPF_X, scalar(), scalar(), 0, 0);
	for (uint32_t k = 1 + next(3); k; k--)
		next(2) ? put_alu(p) : put_access(p);
	p->insns[at].off = (int16_t)(p->n - at - 1);
}

/* A loop of a few rounds over a counter of its own, r8. */
static void put_loop(struct program *p)
{
	put(p, BPF_ALU64 | BPF_MOV | BPF_K, 8, 0, 0, (int32_t)(1 + next(4)));
	uint32_t top = p->n;
	for (uint32_t k = 1 + next(3); k; k--)
		next(2) ? put_alu(p) : put_access(p);
	put(p, BPF_ALU64 | BPF_SUB | BPF_K, 8, 0, 0, 1);
	put(p, BPF_JMP | BPF_JNE | BPF_K, 8, 0, (int16_t)((int32_t)top - (int32_t)p->n - 1), 0);
}

static void put_step(struct program *p)
{
	switch (next(12)) {
	case 0:
	case 1:
	case 2:
	case 3:
		put_alu(p);
		break;
	case 4:
	case 5:
	case 6:
		put_access(p);
		break;
	case 7:
		put_atomic(p);
		break;
	case 8:
		put_branch(p);
		break;
	case 9:
		next(3) ? put_rmw(p) : put_loop(p);
		break;
	case 10:
		next(2) ? put_call(p) : put_bpf_loop(p);
		break;
	default:
		if (!p->in_function)
			put_rmw(p);
	}
}

static void init_frame(struct program *p)
{
	for (int off = -FRAME; off < 0; off += 8)
		put(p, BPF_ST | BPF_MEM | BPF_DW, 10, 0, (int16_t)off, some_imm());
}

static void put_function(struct program *p);

static void generate(struct program *p)
{
	memset(p, 0, sizeof(*p));
	put(p, BPF_ALU64 | BPF_MOV | BPF_X, 6, 1, 0, 0);
	put_imm64(p, 7, BPF_PSEUDO_MAP_VALUE, 0);
	init_scalars(p, false);
	init_frame(p);
	for (uint32_t k = 4 + next(30); k; k--)
		put_step(p);
	put(p, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
	if (p->n_calls) {
		for (uint32_t k = 0; k < p->n_calls; k++)
			p->insns[p->calls[k]].imm = (int32_t)(p->n - p->calls[k] - 1);
		put_function(p);
		put(p, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
	}
	if (p->n_loops) {
		for (uint32_t k = 0; k < p->n_loops; k++)
			p->insns[p->loops[k]].imm = (int32_t)(p->n - p->loops[k] - 1);
		put(p, BPF_ALU64 | BPF_MOV | BPF_X, 8, 1, 0, 0);
		put(p, BPF_ALU64 | BPF_MOV | BPF_X, 1, 2, 0, 0);
		put_function(p);
		put(p, BPF_ALU64 | BPF_XOR | BPF_X, 0, 8, 0, 0);
		put(p, BPF_ALU64 | BPF_AND | BPF_K, 0, 0, 0, 5);
		put(p, BPF_ALU64 | BPF_RSH | BPF_K, 0, 0, 0, 2);
		put(p, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
	}
}

static void put_function(struct program *p)
{
	p->in_function = true;
	init_scalars(p, false);
	init_frame(p);
	for (uint32_t k = 2 + next(10); k; k--)
		switch (next(4)) {
		case 0:
			put_branch(p);
			break;
		case 1:
			put_alu(p);
			break;
		default:
			put_access(p);
		}
}

static void *value_of(void *self, uint32_t map)
{
	return self;
}

static const struct interp_ops ops = { .value = value_of };
static struct device *device;
static struct ebpf_map map = { .name = "m",
	.type = BPF_MAP_TYPE_ARRAY,
	.key_size = 4,
	.value_size = VALUE,
	.max_entries = 1 };
static uint64_t buffers, image; /* one run's memory, result and table; the map */

static bool launch(
	struct device_module *m, uint32_t index, uint32_t of, struct program *p, uint64_t *r0)
{
	const uint32_t one[3] = { 1, 1, 1 };
	uint64_t args[3] = { buffers, buffers + MEMORY, buffers + 128 };
	char name[32];
	snprintf(name, sizeof(name), of == 1 ? "egpu_test" : "egpu_test%u", index);
	return device_write(device, buffers, p->memory, MEMORY) &&
	       device_write(device, image + MAP_IMAGE_HEADER, p->value, VALUE) &&
	       device_launch(device, m, name, one, one, args, 3) && device_wait(device) &&
	       device_read(device, p->memory, buffers, MEMORY) &&
	       device_read(device, r0, buffers + MEMORY, 8) &&
	       device_read(device, p->value, image + MAP_IMAGE_HEADER, VALUE);
}

static void show(const struct ebpf_program *e, const char *ptx)
{
	struct buf b = { 0 };
	ebpf_program_print(e, &b);
	for (char *line = strtok(b.data, "\n"); line; line = strtok(NULL, "\n"))
		printf("# %s\n", line);
	buf_free(&b);
	if (getenv("SHOW_PTX"))
		puts(ptx);
}

/* One batch: generates until BATCH programs are accepted; the number that differ. */
static uint32_t batch(uint32_t n, uint32_t *refused, uint32_t *atomic)
{
	static struct program programs[BATCH];
	static struct ebpf_program e[BATCH];
	static const struct ebpf_program *list[BATCH];
	static struct verifier_result results[BATCH];
	struct arena *arena = arena_new();
	struct buf ptx = { 0 };
	struct diag d = { 0 };
	uint32_t differ = 0;
	for (uint32_t k = 0; k < n;) {
		generate(&programs[k]);
		e[k] = (struct ebpf_program){ .name = "random",
			.insns = programs[k].insns,
			.n_insns = programs[k].n,
			.memory_bytes = MEMORY,
			.maps = &map,
			.n_maps = 1 };
		list[k] = &e[k];
		struct diag why = { 0 };
		if (verifier_check(arena, &e[k], NULL, &results[k], NULL, &why)) {
			if (getenv("SHOW_REFUSED"))
				printf("# %s\n", why.text);
			++*refused;
			if (*refused > 100 * n)
				break;
			continue;
		}
		for (uint32_t b = 0; b < MEMORY; b++) {
			programs[k].memory[b] = (uint8_t)next(256);
			programs[k].value[b] = (uint8_t)next(256);
		}
		k++;
	}
	struct device_module *m = NULL;
	if (translate_test_module(arena, list, results, n, device_target(device), &ptx, &d))
		printf("# %s\n", d.text);
	else
		m = device_load(device, ptx.data);
	for (const char *s = ptx.data; s && (s = strstr(s, "red.global.add")); s++)
		++*atomic;
	for (uint32_t k = 0; k < n; k++) {
		struct program on_cpu = programs[k];
		struct interp run = { .program = &e[k],
			.memory = on_cpu.memory,
			.ops = &ops,
			.self = on_cpu.value,
			.max_insns = results[k].max_run_insns, /* as promised */
			.check = true };
		struct interp_result r = { 0 };
		uint64_t r0 = ~0ull;
		if (interp_run(&run, &r))
			printf("# interpreter: %s\n", r.violation);
		if (m && launch(m, k, n, &programs[k], &r0) && r0 == r.r0 &&
			!memcmp(on_cpu.memory, programs[k].memory, MEMORY) &&
			!memcmp(on_cpu.value, programs[k].value, VALUE))
			continue;
		if (!differ++) {
			printf("# r0 0x%llx, on the device 0x%llx; memory %s, map %s\n",
				(unsigned long long)r.r0, (unsigned long long)r0,
				memcmp(on_cpu.memory, programs[k].memory, MEMORY) ? "differs"
										  : "same",
				memcmp(on_cpu.value, programs[k].value, VALUE) ? "differs"
									       : "same");
			show(&e[k], ptx.data);
		}
	}
	device_unload(device, m);
	buf_free(&ptx);
	arena_free(arena);
	return differ;
}

int main(int argc, char **argv)
{
	const char *why = "EGPU_BUILD does not name the build directory",
		   *library = argc > 1 ? argv[1] : NULL;
	/* The whole number in the one build that is fast and usual. */
	bool few = getenv("EGPU_SANITIZED") || strstr(argv[0], "tiny");
	uint32_t programs = argc > 2 ? (uint32_t)atoi(argv[2]) : few ? 1024 : 10000, differ = 0, refused = 0,
		 atomic = 0;
	char own[512];
	state = argc > 3 ? strtoull(argv[3], NULL, 0) : 0x853c49e6748fea9bull;
	if (!library && getenv("EGPU_BUILD")) {
		snprintf(own, sizeof(own), "%s/src/softgpu/libcuda.so.1", getenv("EGPU_BUILD"));
		library = own;
	}
	device = library ? device_open(library, &why) : NULL;
	if (!device) {
		tap_skip(why);
		return tap_done();
	}
	uint64_t bytes = map_image_bytes(map.type, 4, VALUE, 1, 1),
		 table[EBPF_TABLE_SYMBOLS] = { 0 };
	buffers = device_alloc(device, 128 + sizeof(table));
	image = device_alloc(device, bytes);
	table[0] = image;
	table[EBPF_TABLE_SMS] = 1;
	device_write(device, buffers + 128, table, sizeof(table));
	for (uint32_t done = 0; done < programs; done += BATCH)
		differ +=
			batch(programs - done < BATCH ? programs - done : BATCH, &refused, &atomic);
	is_int(differ, 0,
		"%u random programs give on the device what they give in the interpreter (%u "
		"refused)",
		programs, refused);
	ok(atomic > programs / 8, "the idiom was met (%u times)", atomic);
	device_free(device, buffers);
	device_free(device, image);
	device_close(device);
	return tap_done();
}
