/* Random programs that load and store the stack in overlapping pieces, call functions with frames and pointers to
 * their caller's frame, have bpf_loop call one, jump forward, loop a few times, and read, add and write map values in every
 * order, so that slot allocation, dead code and the load-add-store and load-compare-store idioms meet cases
 * nobody thought of. */
#include "random.h"

#include <string.h>

#include "bpf/helpers.h"
#include "bpf/insns.h"

enum { MAX_INSNS = RANDOM_INSNS, MEMORY = RANDOM_MEMORY, VALUE = RANDOM_VALUE, FRAME = 64, SCALARS = 6 };

uint64_t random_state;
bool random_aligned;

uint32_t random_next(uint32_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)((random_state >> 11) % n);
}


static void put(struct random_program *p, uint8_t code, uint8_t dst, uint8_t src, int16_t off, int32_t imm)
{
	if (p->n < MAX_INSNS)
		p->insns[p->n++] = (struct bpf_insn){
			.code = code, .dst_reg = dst, .src_reg = src, .off = off, .imm = imm
		};
}

static void put_imm64(struct random_program *p, uint8_t dst, uint8_t src, uint64_t value)
{
	put(p, BPF_LD | BPF_IMM | BPF_DW, dst, src, 0, (int32_t)value);
	put(p, 0, 0, 0, 0, (int32_t)(value >> 32));
}

static int32_t some_imm(void)
{
	static const int32_t odd[] = { 0, 1, -1, 7, 8, 31, 32, 63, 64, 255, 256, 0x7fffffff,
		(int32_t)0x80000000 };
	return random_next(2) ? odd[random_next(13)] : (int32_t)((uint32_t)random_next(65536) << 16 | random_next(65536));
}

/* Registers that hold numbers at all times. */
static uint8_t scalar(void)
{
	static const uint8_t regs[SCALARS] = { 0, 2, 3, 4, 5, 9 };
	return regs[random_next(SCALARS)];
}

static void put_alu(struct random_program *p)
{
	static const uint8_t ops[] = { BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_OR, BPF_AND, BPF_LSH,
		BPF_RSH, BPF_NEG, BPF_MOD, BPF_XOR, BPF_MOV, BPF_ARSH, BPF_END, BPF_ADD, BPF_MOV };
	uint8_t op = ops[random_next(16)], class = random_next(2) ? BPF_ALU64 : BPF_ALU,
		src = random_next(2) ? BPF_X : BPF_K, dst = scalar();
	int32_t imm = src == BPF_K ? some_imm() : 0;
	int16_t off = 0;
	uint8_t from = src == BPF_X ? scalar() : 0;
	if (op == BPF_LSH || op == BPF_RSH || op == BPF_ARSH)
		imm = src == BPF_K ? (int32_t)random_next(class == BPF_ALU64 ? 64 : 32) : 0;
	if ((op == BPF_DIV || op == BPF_MOD) && src == BPF_K && !imm)
		imm = 3;
	if (op == BPF_DIV || op == BPF_MOD)
		off = (int16_t)random_next(2);
	if (op == BPF_MOV && src == BPF_X && !random_next(3))
		off = (int16_t)(8 << random_next(class == BPF_ALU64 ? 3 : 2));
	if (op == BPF_NEG) {
		src = BPF_K;
		imm = from = 0;
	}
	if (op == BPF_END) {
		src = class == BPF_ALU64 ? BPF_K : random_next(2) ? BPF_X : BPF_K;
		imm = 16 << random_next(3);
		from = 0;
	}
	put(p, class | op | src, dst, from, off, imm);
}

static const uint8_t sizes[] = { BPF_B, BPF_H, BPF_W, BPF_DW };

/* An aligned place of 2^size bytes in `bytes`; registers 6 and 7 point to the memory and the map's
 * value, 10 to the frame. */
static void put_access(struct random_program *p)
{
	uint8_t base = p->in_function ? (random_next(2) ? 10 : 1) : (uint8_t[]){ 6, 7, 10, 10 }[random_next(4)];
	uint32_t size = random_next(4);
	int16_t off = (int16_t)(random_next(FRAME >> size) << size);
	uint8_t reg = scalar();
	if (base == 10)
		off -= FRAME;
	if (base == 6 && !random_aligned && !random_next(3)) /* the buffer at any alignment */
		off = (int16_t)random_next(MEMORY - (1u << size) + 1);
	switch (random_next(3)) {
	case 0:
		put(p, BPF_LDX | (size < 3 && random_next(3) == 0 ? 0x80 : BPF_MEM) | sizes[size], reg,
			base, off, 0);
		break;
	case 1:
		put(p, BPF_STX | BPF_MEM | sizes[size], base, reg, off, 0);
		break;
	default:
		put(p, BPF_ST | BPF_MEM | sizes[size], base, 0, off, some_imm());
	}
}

static void put_atomic(struct random_program *p)
{
	static const int32_t ops[] = { BPF_ADD, BPF_ADD | BPF_FETCH, BPF_OR, BPF_OR | BPF_FETCH,
		BPF_AND, BPF_AND | BPF_FETCH, BPF_XOR, BPF_XOR | BPF_FETCH, BPF_XCHG, BPF_CMPXCHG };
	uint8_t base = p->in_function ? 10 : (uint8_t[]){ 6, 7, 10 }[random_next(3)];
	uint32_t size = 2 + random_next(2);
	int16_t off = (int16_t)(random_next(FRAME >> size) << size);
	put(p, BPF_STX | BPF_ATOMIC | sizes[size], base, scalar(),
		base == 10 ? (int16_t)(off - FRAME) : off, ops[random_next(10)]);
}

/* Load, additions, copies, branches and other work, store: often the idiom, sometimes nearly. */
static void put_rmw(struct random_program *p)
{
	uint32_t size = 2 + random_next(2), jumps[4], n_jumps = 0;
	int16_t off = (int16_t)(random_next(3) << 3);
	uint8_t reg = scalar(), class = size == 3 || random_next(2) ? BPF_ALU64 : BPF_ALU;
	put(p, BPF_LDX | BPF_MEM | sizes[size], reg, 7, off, 0);
	for (uint32_t k = 1 + random_next(6); k; k--) {
		uint8_t add = random_next(3) ? BPF_ADD : BPF_SUB, other = scalar();
		switch (random_next(9)) {
		case 0:
			put_alu(p);
			break;
		case 1:
			put_access(p);
			break;
		case 2:
			put(p, BPF_ALU64 | BPF_MOV | BPF_X, other, reg, 0, 0);
			if (random_next(2))
				reg = other;
			break;
		case 3:
			put(p, class | BPF_ADD | BPF_X, other, reg, 0, 0);
			if (random_next(2))
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
		if (n_jumps && random_next(2)) {
			n_jumps--;
			p->insns[jumps[n_jumps]].off = (int16_t)(p->n - jumps[n_jumps] - 1);
		}
	}
	uint32_t store = p->n;
	put(p, BPF_STX | BPF_MEM | sizes[size], 7, reg, off, 0);
	while (n_jumps) {
		n_jumps--;
		p->insns[jumps[n_jumps]].off =
			(int16_t)((random_next(2) ? store : p->n) - jumps[n_jumps] - 1);
	}
}

static const uint8_t orders[] = { BPF_JGT, BPF_JGE, BPF_JLT, BPF_JLE, BPF_JSGT, BPF_JSGE, BPF_JSLT, BPF_JSLE };

/* A copy of a number of 4 bytes as one of 8, with or without a sign; often the same way. */
static void put_extension(struct random_program *p, uint8_t to, uint8_t from, bool sign)
{
	if (random_next(8) == 0)
		sign = !sign;
	switch (random_next(4)) {
	case 0:
		put(p, sign ? BPF_ALU64 | BPF_MOV | BPF_X : BPF_ALU | BPF_MOV | BPF_X, to, from, sign ? 32 : 0, 0);
		break;
	case 1:
		put(p, BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0);
		break;
	default:
		if (to != from)
			put(p, BPF_ALU64 | BPF_MOV | BPF_X, to, from, 0, 0);
		put(p, BPF_ALU64 | BPF_LSH | BPF_K, to, 0, 0, random_next(16) ? 32 : 31);
		put(p, BPF_ALU64 | (sign ? BPF_ARSH : BPF_RSH) | BPF_K, to, 0, 0, 32);
	}
}

/* What does not belong there, now and then. */
static void put_noise(struct random_program *p)
{
	switch (random_next(14)) {
	case 0:
		put_alu(p);
		break;
	case 1:
		put_access(p);
		break;
	case 2:
		put_rmw(p);
		break;
	case 3: /* a jump around one instruction or two */
		put(p, BPF_JMP | BPF_JGT | BPF_K, scalar(), 0, (int16_t)(1 + random_next(2)), some_imm());
		put(p, BPF_ALU64 | BPF_MOV | BPF_X, scalar(), scalar(), 0, 0);
		put(p, BPF_ALU64 | BPF_ADD | BPF_K, scalar(), 0, 0, some_imm());
		break;
	}
}

/* if (x < *v) *v = x; as clang writes it, and nearly: the store on the way straight on, on the one that the jump takes, or behind both with
 * the one or the other in a register. */
static void put_extreme(struct random_program *p)
{
	static const uint8_t apart[3][4] = { { 0, 2, 3, 4 }, { 5, 4, 9, 0 }, { 3, 9, 2, 5 } };
	const uint8_t *r = apart[random_next(3)];
	uint8_t old = r[0], x = r[1], cmp_old = old, cmp_x = x, kept = r[3], order = orders[random_next(8)];
	uint32_t size = 2 + random_next(2), shape = random_next(4), jump, over, in_from = 0;
	bool moved = random_next(12) == 0, enters = shape > 1 && random_next(12) == 0; /* the pointer, in between; into the middle */
	bool narrow = size == 2 && random_next(2), swap = random_next(2), sign = order >= BPF_JSGT && order != BPF_JLT && order != BPF_JLE;
	int16_t off = (int16_t)(random_next(3) << 3);
	uint8_t class = size == 2 && !narrow ? BPF_JMP32 : BPF_JMP;
	if (random_next(2))
		put(p, BPF_LDX | BPF_MEM | sizes[random_next(4)], x, 6, (int16_t)(8 * random_next(MEMORY / 8)), 0);
	if (enters) {
		in_from = p->n;
		put(p, BPF_JMP | BPF_JGT | BPF_K, scalar(), 0, 0, some_imm());
	}
	put_noise(p);
	if (narrow && random_next(2))
		put_extension(p, cmp_x = random_next(2) ? x : r[2], x, sign);
	put_noise(p);
	put(p, BPF_LDX | BPF_MEM | sizes[size], old, 7, off, 0);
	put_noise(p);
	if (narrow)
		put_extension(p, cmp_old = random_next(2) || cmp_x == r[2] ? old : r[2], old, sign);
	if (narrow && cmp_x == x && random_next(2) && cmp_old != r[2])
		put_extension(p, cmp_x = r[2], x, sign);
	if (shape == 2 || random_next(12) == 0)
		put(p, (random_next(4) ? BPF_ALU64 : BPF_ALU) | BPF_MOV | BPF_X, kept, x, 0, 0);
	put_noise(p);
	moved &= !enters;
	if (moved) {
		put(p, BPF_ALU64 | BPF_ADD | BPF_K, 7, 0, 0, 8);
		off = (int16_t)(off - (random_next(2) && off ? 8 : 0));
	}
	jump = p->n;
	put(p, class | order | BPF_X, swap ? cmp_x : cmp_old, swap ? cmp_old : cmp_x, 0, 0);
	switch (shape) {
	case 0: /* the store straight on */
		if (!random_next(8))
			put_noise(p);
		put(p, BPF_STX | BPF_MEM | sizes[size], 7, random_next(12) ? x : cmp_x, off, 0);
		if (!random_next(8))
			put_noise(p);
		break;
	case 1: /* or jumped to */
		put(p, BPF_JMP | BPF_JA, 0, 0, 1, 0);
		p->insns[jump].off = (int16_t)(p->n - jump - 1);
		put(p, BPF_STX | BPF_MEM | sizes[size], 7, random_next(12) ? x : cmp_x, off, 0);
		if (moved)
			put(p, BPF_ALU64 | BPF_SUB | BPF_K, 7, 0, 0, 8);
		return;
	case 2: /* kept = old */
		put(p, (random_next(4) || size == 3 ? BPF_ALU64 : BPF_ALU) | BPF_MOV | BPF_X, kept, random_next(12) ? old : cmp_old, 0, 0);
		break;
	default: /* old = x */
		kept = old;
		put(p, BPF_ALU64 | BPF_MOV | BPF_X, old, random_next(12) ? x : cmp_x, 0, 0);
	}
	p->insns[jump].off = (int16_t)(p->n - jump - 1);
	if (shape < 2) {
		if (moved)
			put(p, BPF_ALU64 | BPF_SUB | BPF_K, 7, 0, 0, 8);
		return;
	}
	if (random_next(2) && enters)
		p->insns[in_from].off = (int16_t)(p->n - in_from - 1);
	put_noise(p);
	if (enters && !p->insns[in_from].off)
		p->insns[in_from].off = (int16_t)(p->n - in_from - 1);
	over = p->n;
	bool skips = random_next(8) == 0;
	skips &= !moved;
	if (skips)
		put(p, BPF_JMP | BPF_JGT | BPF_K, scalar(), 0, 0, some_imm());
	put(p, BPF_STX | BPF_MEM | sizes[size], 7, kept, off, 0);
	if (moved)
		put(p, BPF_ALU64 | BPF_SUB | BPF_K, 7, 0, 0, 8);
	if (random_next(3)) /* nobody wants it any more */
		put(p, BPF_ALU64 | BPF_MOV | BPF_K, kept, 0, 0, some_imm());
	if (random_next(3))
		put(p, BPF_ALU64 | BPF_MOV | BPF_K, old, 0, 0, some_imm());
	if (skips)
		p->insns[over].off = (int16_t)(p->n - over - 1);
}

static void init_scalars(struct random_program *p, bool keep_r0)
{
	static const uint8_t regs[] = { 0, 2, 3, 4, 5, 9 };
	for (int k = keep_r0; k < SCALARS - keep_r0; k++)
		put(p, BPF_ALU64 | BPF_MOV | BPF_K, regs[k], 0, 0, some_imm());
	if (!keep_r0)
		put_imm64(p, 9, 0, random_state);
}

/* What a call leaves: r1..r5 are gone. */
static void put_call(struct random_program *p)
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
static void put_bpf_loop(struct random_program *p)
{
	if (p->in_function || p->n_loops == 8)
		return;
	p->loops[p->n_loops++] = p->n;
	put_imm64(p, 2, BPF_PSEUDO_FUNC, 0);
	if (random_next(3))
		put(p, BPF_ALU64 | BPF_MOV | BPF_K, 1, 0, 0, (int32_t)random_next(7));
	else {
		put(p, BPF_ALU64 | BPF_MOV | BPF_X, 1, 9, 0, 0);
		put(p, BPF_ALU64 | BPF_AND | BPF_K, 1, 0, 0, 15);
	}
	put(p, BPF_ALU64 | BPF_MOV | BPF_X, 3, 10, 0, 0);
	put(p, BPF_ALU64 | BPF_ADD | BPF_K, 3, 0, 0, -FRAME);
	put(p, BPF_ALU64 | BPF_MOV | BPF_K, 4, 0, 0, random_next(8) == 0);
	put(p, BPF_JMP | BPF_CALL, 0, 0, 0, EBPF_FUNC_loop);
	init_scalars(p, true);
	put(p, BPF_ALU64 | BPF_MOV | BPF_X, 9, 0, 0, 0);
}

static void put_step(struct random_program *p);

static void put_branch(struct random_program *p)
{
	static const uint8_t ops[] = { BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET, BPF_JNE, BPF_JSGT,
		BPF_JSGE, BPF_JLT, BPF_JLE, BPF_JSLT, BPF_JSLE };
	uint8_t class = random_next(2) ? BPF_JMP : BPF_JMP32;
	uint32_t at = p->n;
	if (random_next(2))
		put(p, class | ops[random_next(11)] | BPF_K, scalar(), 0, 0, some_imm());
	else
		put(p, class | ops[random_next(11)] | BPF_X, scalar(), scalar(), 0, 0);
	for (uint32_t k = 1 + random_next(3); k; k--)
		random_next(2) ? put_alu(p) : put_access(p);
	p->insns[at].off = (int16_t)(p->n - at - 1);
}

/* A loop of a few rounds over a counter of its own, r8. */
static void put_loop(struct random_program *p)
{
	put(p, BPF_ALU64 | BPF_MOV | BPF_K, 8, 0, 0, (int32_t)(1 + random_next(4)));
	uint32_t top = p->n;
	for (uint32_t k = 1 + random_next(3); k; k--)
		random_next(2) ? put_alu(p) : put_access(p);
	put(p, BPF_ALU64 | BPF_SUB | BPF_K, 8, 0, 0, 1);
	put(p, BPF_JMP | BPF_JNE | BPF_K, 8, 0, (int16_t)((int32_t)top - (int32_t)p->n - 1), 0);
}

static void put_step(struct random_program *p)
{
	switch (random_next(14)) {
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
		random_next(3) ? put_rmw(p) : put_loop(p);
		break;
	case 10:
		random_next(2) ? put_call(p) : put_bpf_loop(p);
		break;
	case 11:
		if (!p->in_function)
			put_rmw(p);
		break;
	default:
		if (!p->in_function)
			put_extreme(p);
	}
}

static void init_frame(struct random_program *p)
{
	for (int off = -FRAME; off < 0; off += 8)
		put(p, BPF_ST | BPF_MEM | BPF_DW, 10, 0, (int16_t)off, some_imm());
}

static void put_function(struct random_program *p);

void random_program(struct random_program *p)
{
	memset(p, 0, sizeof(*p));
	put(p, BPF_ALU64 | BPF_MOV | BPF_X, 6, 1, 0, 0);
	put_imm64(p, 7, BPF_PSEUDO_MAP_VALUE, 0);
	init_scalars(p, false);
	init_frame(p);
	for (uint32_t k = 4 + random_next(30); k; k--)
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

static void put_function(struct random_program *p)
{
	p->in_function = true;
	init_scalars(p, false);
	init_frame(p);
	for (uint32_t k = 2 + random_next(10); k; k--)
		switch (random_next(4)) {
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
