/* weigh.c - a program that runs in a part of the warps adds for all of them.
 *
 * Where one warp in N runs the program, chosen without regard to what it does, N times what it adds has on average the sum that
 * all warps would add (Horvitz and Thompson's estimate); N may differ from launch to launch. So additions to maps that the program
 * only adds to are multiplied, where they are made, by the number of warps that this one stands for; nothing is scaled
 * afterwards. An insertion into a hash map begins a sum: the words of its value that are added to elsewhere are multiplied too, and so is the count of those that
 * found the map full.
 *
 * Requires use, of which it sets `weighed` where it multiplies.
 */
#include "translate/internal.h"

enum { WEIGHT_BITS = 19 }; /* of the largest weight */

static bool is_sum(uint8_t fold)
{
	return fold == EBPF_FOLD_ADD32 || fold == EBPF_FOLD_ADD64;
}

/* Whether it is known which numbers of a value that is inserted are sums: those at known places, of 8 bytes, or of 4 where it is the whole
 * value. */
static bool insertions_add(const struct ebpf_map *m, const struct ebpf_map_use *use)
{
	bool all = true, narrow = false;
	for (int k = 0; k < EBPF_FOLD_HALVES; k++) {
		all &= use->fold[k] != EBPF_FOLD_NONE;
		narrow |= use->fold[k] == EBPF_FOLD_ADD32;
	}
	return m->value_size <= TR_BY_VALUE && !all && (!narrow || m->value_size == 4);
}

bool tr_weighs(const struct tr *t, const struct ebpf_map *m)
{
	const struct ebpf_map_use *use = &t->use[m->id];
	return t->p->sampled && use->folded && !use->other && ebpf_folds_agree(use->fold, false) &&
	       (!use->inserted || insertions_add(m, use));
}

static struct tr_name weight64(struct tr *t)
{
	struct tr_name w = tr_t64(t);
	tr_emit(t, "cvt.u64.u32 %s, %%egpu_weight;", w.s);
	return w;
}

void tr_weigh_sum(struct tr *t, const struct tr_inst *inst, uint32_t i, struct tr_sum *sum)
{
	int32_t map = tr_fact(t, inst, i)->map;
	if (sum->op != TR_ADD || map < 0 || !tr_weighs(t, &t->p->maps[map]))
		return;
	struct tr_name out = sum->wide ? tr_t64(t) : tr_t32(t);
	if (!sum->wide)
		tr_emit(t, "mul.lo.u32 %s, %s, %%egpu_weight;", out.s, sum->value.s);
	else if (sum->constant && sum->addend >= 0 && sum->addend <= UINT32_MAX)
		tr_emit(t, "mul.wide.u32 %s, %%egpu_weight, %lld;", out.s, (long long)sum->addend);
	else
		tr_emit(t, "mul.lo.u64 %s, %s, %s;", out.s, weight64(t).s, sum->value.s);
	sum->value = out;
	sum->constant = false;
	sum->bits = sum->bits > 64 - WEIGHT_BITS ? 64 : sum->bits + WEIGHT_BITS;
	t->use[t->p->maps[map].id].weighed = true;
}

struct tr_name tr_weigh(struct tr *t, struct tr_name n)
{
	struct tr_name out = tr_t64(t);
	tr_emit(t, "mul.lo.u64 %s, %s, %s;", out.s, weight64(t).s, n.s);
	return out;
}

struct tr_name tr_weigh_word(struct tr *t, const struct ebpf_map *m, uint32_t at, struct tr_name word)
{
	const struct ebpf_map_use *use = &t->use[m->id];
	if (!tr_weighs(t, m))
		return word;
	return is_sum(use->fold[at / 4 % EBPF_FOLD_HALVES]) ? tr_weigh(t, word) : word;
}
