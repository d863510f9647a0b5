/* bloom.c - push and peek of Bloom filters (map/layout.h). A bit that is set stays so: nobody waits, and nobody is refused. */
#include "translate/internal.h"

enum { ENOENT_ = -2, EINVAL_ = -22 };

/* map_hash_key of the value. */
static struct tr_name hash_of(struct tr *t, const struct tr_mem *value, uint32_t bytes)
{
	struct tr_name h = tr_t32(t), s = tr_t32(t), w = tr_t32(t);
	tr_emit(t, "mov.u32 %s, 0x9747b28c;", h.s);
	for (uint32_t at = 0; at < bytes; at += 4) {
		struct tr_name word = tr_mem_word(t, value, at, bytes - at < 4 ? bytes - at : 4);
		if (word.s[0] == '%')
			tr_emit(t, "cvt.u32.u64 %s, %s;", w.s, word.s);
		else
			tr_emit(t, "mov.u32 %s, %s;", w.s, word.s);
		tr_emit(t, "xor.b32 %s, %s, %s;", h.s, h.s, w.s);
		tr_emit(t, "mul.lo.u32 %s, %s, 0x85ebca6b;", h.s, h.s);
		tr_emit(t, "shr.u32 %s, %s, 13;", s.s, h.s);
		tr_emit(t, "xor.b32 %s, %s, %s;", h.s, h.s, s.s);
	}
	return h;
}

/* x ^= x >> shift. */
static void fold(struct tr *t, struct tr_name x, uint32_t shift)
{
	struct tr_name s = tr_t32(t);
	tr_emit(t, "shr.u32 %s, %s, %u;", s.s, x.s, shift);
	tr_emit(t, "xor.b32 %s, %s, %s;", x.s, x.s, s.s);
}

/* The word that holds the i-th bit, less MAP_IMAGE_HEADER, and the bit in it. */
static struct tr_name bit_at(struct tr *t, const struct ebpf_map *m, struct tr_name base, struct tr_name hash, uint32_t i, struct tr_name *bit)
{
	struct tr_name x = tr_t32(t), word = tr_t32(t), at = tr_t64(t);
	*bit = tr_t32(t);
	tr_emit(t, "add.u32 %s, %s, 0x%x;", x.s, hash.s, i * 0x9e3779b9u);
	fold(t, x, 16);
	tr_emit(t, "mul.lo.u32 %s, %s, 0x85ebca6b;", x.s, x.s);
	fold(t, x, 13);
	tr_emit(t, "mul.lo.u32 %s, %s, 0xc2b2ae35;", x.s, x.s);
	fold(t, x, 16);
	tr_emit(t, "and.b32 %s, %s, 0x%x;", x.s, x.s, (uint32_t)(map_bloom_bits(m->max_entries) - 1));
	tr_emit(t, "shr.u32 %s, %s, 5;", word.s, x.s);
	tr_emit(t, "mad.wide.u32 %s, %s, 4, %s;", at.s, word.s, base.s);
	tr_emit(t, "and.b32 %s, %s, 31;", x.s, x.s);
	tr_emit(t, "shl.b32 %s, 1, %s;", bit->s, x.s);
	return at;
}

/* Bits that are set already are not set again: most of a full filter's are, and loads meet nobody. */
static void push(struct tr *t, const struct ebpf_map *m, struct tr_name base, struct tr_name hash, struct tr_name r)
{
	for (uint32_t i = 0; i < map_bloom_hashes(m->extra); i++) {
		struct tr_name bit, at = bit_at(t, m, base, hash, i, &bit), w = tr_t32(t), unset = tr_pred(t);
		tr_emit(t, "ld.volatile.global.u32 %s, [%s+%d];", w.s, at.s, MAP_IMAGE_HEADER);
		tr_emit(t, "and.b32 %s, %s, %s;", w.s, w.s, bit.s);
		tr_emit(t, "setp.eq.u32 %s, %s, 0;", unset.s, w.s);
		tr_emit(t, "@%s red.global.or.b32 [%s+%d], %s;", unset.s, at.s, MAP_IMAGE_HEADER, bit.s);
	}
	tr_emit(t, "mov.u64 %s, 0;", r.s);
}

static void peek(struct tr *t, const struct ebpf_map *m, struct tr_name base, struct tr_name hash, struct tr_name r)
{
	tr_emit(t, "mov.u64 %s, 0;", r.s);
	for (uint32_t i = 0; i < map_bloom_hashes(m->extra); i++) {
		struct tr_name bit, at = bit_at(t, m, base, hash, i, &bit), w = tr_t32(t), unset = tr_pred(t);
		tr_emit(t, "ld.volatile.global.u32 %s, [%s+%d];", w.s, at.s, MAP_IMAGE_HEADER);
		tr_emit(t, "and.b32 %s, %s, %s;", w.s, w.s, bit.s);
		tr_emit(t, "setp.eq.u32 %s, %s, 0;", unset.s, w.s);
		tr_emit(t, "@%s mov.u64 %s, %d;", unset.s, r.s, ENOENT_);
	}
}

int tr_bloom_lower(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_map *m = tr_map_arg(t, inst, i);
	struct tr_name r = tr_t64(t), end = tr_label(t);
	struct tr_mem value;
	int err = tr_mem_arg(t, inst, i, 1, &value);
	if (err)
		return err;
	if (tr_bpf(t, inst, i)->imm == BPF_FUNC_map_push_elem) {
		struct tr_name flags = tr_t64(t), bad = tr_pred(t);
		tr_emit(t, "mov.u64 %s, %d;", r.s, EINVAL_);
		tr_emit(t, "mov.u64 %s, %s;", flags.s, tr_scalar_arg(t, inst, i, 2).s);
		tr_emit(t, "setp.ne.u64 %s, %s, 0;", bad.s, flags.s);
		tr_emit(t, "@%s bra %s;", bad.s, end.s);
		push(t, m, tr_map_base(t, m), hash_of(t, &value, m->value_size), r);
	} else {
		peek(t, m, tr_map_base(t, m), hash_of(t, &value, m->value_size), r);
	}
	buf_printf(&t->body, "%s:\n", end.s);
	tr_emit(t, "mov.u64 %s, %s;", tr_reg(inst, 0).s, r.s);
	return 0;
}
