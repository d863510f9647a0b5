/* hash.c - operations on hash maps (map/layout.h), specialised by key and value size: inline where keys are small and calls few, else
 * module-scope functions, which all sites of a kernel share.
 *
 * A slot's first 64 bits, u32 state | u32 hash << 32, change as one word:
 *
 *	empty --CAS--> busy --(key, value, count, membar.gl)--> live
 *	live  --CAS--> busy --(count, membar.gl)--> dead
 *	dead  --CAS--> busy --(value, count, membar.gl)--> live
 *
 * The claim publishes the hash, so that whoever meets a busy slot of another hash walks on, and
 * whoever inserts one of its own hash waits: two inserts of one key can never take two slots,
 * because both walk the same slots in the same order, a slot once taken keeps its key for ever, and
 * neither goes past an undecided slot that may hold the key.
 *
 * The image's `live` word: keys in the low half, insertions under way in the high half. An
 * insertion reserves its room (keys + under way < max_entries) before it claims a slot, so that the
 * map never holds more. A key is counted while its slot is live, from before it becomes so until
 * before it is dead; hence whoever finds its slot free or dead and then max_entries keys counted,
 * and then the slot unchanged, has max_entries other keys against it: the map is full. Lost races
 * for a slot are not mistaken for that.
 *
 * Waiting is bounded, and each pass of the loop ends in one place: lanes of a warp that wait for
 * another lane's insertion let it finish its pass first, also on hardware that runs the lanes of a
 * warp in lockstep.
 *
 * Readers take the state with ld.volatile, and key and value only after having branched on it;
 * loads are not executed ahead of a branch, and volatile ones do not come from a stale L1 line. The
 * writer's membar.gl before the live state pairs with that.
 */
#include "translate/internal.h"

#include <string.h>

enum { SPINS = 1 << 18, LOOKS = 16 };

struct hash {
	uint32_t key, value, slot;   /* bytes; slot: of a whole slot */
	bool key_words, value_words; /* passed by value, in 8-byte words; else by generic address */
	const struct tr_name *args;  /* inline: image, mask, of an update limit and flags, key, value; NULL: a function */
	uint32_t arg;                /* the next */
};

static struct hash hash_of(const struct ebpf_map *m)
{
	return (struct hash){ m->key_size, m->value_size,
		map_hash_slot_bytes(m->key_size, m->value_size), m->key_size <= TR_BY_VALUE,
		m->value_size <= TR_BY_VALUE, NULL, 0 };
}

static uint32_t words(uint32_t bytes)
{
	return (bytes + 7) / 8;
}

static void put_params(struct buf *b, const char *name, bool by_value, uint32_t bytes)
{
	if (!by_value)
		buf_printf(b, ", .param .b64 at_%s", name);
	for (uint32_t k = 0; by_value && k < words(bytes); k++)
		buf_printf(b, ", .param .b64 %s%u", name, k);
}

/* The next argument into its register. */
static void put_arg(struct buf *b, struct hash *h, const char *name)
{
	if (h->args)
		buf_printf(b, "\tmov.b64 %%%s, %s;\n", name, h->args[h->arg++].s);
	else
		buf_printf(b, "\tld.param.b64 %%%s, [%s];\n", name, name);
}

/* A key or value, by words or by address. */
static void put_memory_arg(struct buf *b, struct hash *h, const char *name, bool by_value, uint32_t bytes)
{
	char reg[32];
	snprintf(reg, sizeof(reg), "at_%s", name);
	if (!by_value)
		put_arg(b, h, reg);
	for (uint32_t k = 0; by_value && k < words(bytes); k++) {
		snprintf(reg, sizeof(reg), "%s%u", name, k);
		put_arg(b, h, reg);
	}
}

static void put_mix(struct buf *b, const char *word)
{
	buf_printf(b,
		"\txor.b32 %%h, %%h, %s;\n\tmul.lo.u32 %%h, %%h, 0x85ebca6b;\n"
		"\tshr.u32 %%t, %%h, 13;\n\txor.b32 %%h, %%h, %%t;\n",
		word);
}

/* %h = map_hash_key(key). A key in words is zero-padded already. */
static void put_hash(struct buf *b, const struct hash *h)
{
	buf_puts(b, "\tmov.u32 %h, 0x9747b28c;\n");
	if (h->key_words) {
		for (uint32_t k = 0; k < words(h->key); k++) {
			buf_printf(b, "\tmov.b64 {%%lo, %%hi}, %%key%u;\n", k);
			put_mix(b, "%lo");
			if (8 * k + 4 < h->key)
				put_mix(b, "%hi");
		}
		return;
	}
	/* %lo collects up to four bytes; mixed when full and at the end. */
	buf_printf(b,
		"\tmov.u32 %%n, 0;\n"
		"$hash:\n"
		"\tmov.u32 %%lo, 0;\n\tmov.u32 %%sh, 0;\n"
		"$bytes:\n"
		"\tcvt.u64.u32 %%d, %%n;\n\tadd.s64 %%d, %%at_key, %%d;\n\tld.u8 %%t, [%%d];\n"
		"\tshl.b32 %%t, %%t, %%sh;\n\tor.b32 %%lo, %%lo, %%t;\n"
		"\tadd.u32 %%n, %%n, 1;\n\tadd.u32 %%sh, %%sh, 8;\n"
		"\tsetp.lt.u32 %%p, %%n, %u;\n\tsetp.lt.and.u32 %%q, %%sh, 32, %%p;\n"
		"\t@%%q bra $bytes;\n",
		h->key);
	put_mix(b, "%lo");
	buf_puts(b, "\t@%p bra $hash;\n");
}

/* %same = the slot's key equals ours. */
static void put_compare(struct buf *b, const struct hash *h)
{
	buf_puts(b, "\tsetp.eq.u32 %same, %h, %h;\n");
	if (h->key_words) {
		for (uint32_t k = 0; k < words(h->key); k++) {
			buf_printf(b, "\tld.volatile.global.u64 %%d, [%%slot+%u];\n", 8 + 8 * k);
			if (8 * k + 8 > h->key)
				buf_printf(b, "\tand.b64 %%d, %%d, 0x%llx;\n",
					(1ull << (8 * (h->key % 8))) - 1);
			buf_printf(b, "\tsetp.eq.and.u64 %%same, %%d, %%key%u, %%same;\n", k);
		}
		return;
	}
	buf_printf(b,
		"\tmov.u32 %%n, 0;\n"
		"$compare:\n"
		"\tcvt.u64.u32 %%d, %%n;\n\tadd.s64 %%e, %%at_key, %%d;\n\tadd.s64 %%d, %%slot, "
		"%%d;\n"
		"\tld.u8 %%t, [%%e];\n\tld.volatile.global.u8 %%lo, [%%d+8];\n"
		"\tsetp.eq.u32 %%same, %%t, %%lo;\n\tadd.u32 %%n, %%n, 1;\n"
		"\tsetp.lt.and.u32 %%p, %%n, %u, %%same;\n\t@%%p bra $compare;\n",
		h->key);
}

/* Stores the key (word by word, padding zero) or the value at [slot + offset]. */
static void put_write(struct buf *b, const char *name, const char *label, bool by_value,
	uint32_t bytes, uint32_t offset)
{
	if (by_value) {
		for (uint32_t k = 0; k < words(bytes); k++)
			buf_printf(b, "\tst.global.u64 [%%slot+%u], %%%s%u;\n", offset + 8 * k,
				name, k);
		return;
	}
	buf_printf(b,
		"\tmov.u32 %%n, 0;\n"
		"%s:\n"
		"\tcvt.u64.u32 %%d, %%n;\n\tadd.s64 %%e, %%at_%s, %%d;\n\tadd.s64 %%d, %%slot, "
		"%%d;\n"
		"\tld.u8 %%t, [%%e];\n\tst.global.u8 [%%d+%u], %%t;\n"
		"\tadd.u32 %%n, %%n, 1;\n\tsetp.lt.u32 %%p, %%n, %u;\n\t@%%p bra %s;\n",
		label, name, offset, bytes, label);
}

static uint32_t value_at(const struct hash *h)
{
	return 8 + 8 * words(h->key);
}

/* Registers, arguments, the hash and the first slot; %left: slots after this one. */
static void put_start(struct buf *b, struct hash *h, bool update)
{
	buf_puts(b, "{\n\t.reg .pred %p, %q, %same, %fast;\n\t.reg .b32 %t, %h, %lo, %hi, %n, %sh, %i, "
		    "%left, %mask, %st, %hs, %f, %spins, %looks;\n"
		    "\t.reg .b64 %d, %e, %image, %data, %slot, %w, %r, %at_key, %at_value, %flags, "
		    "%limit, %mask64, %room;\n");
	buf_puts(b, "\t.reg .b64 %key<8>, %value<8>;\n");
	put_arg(b, h, "image");
	put_arg(b, h, "mask64");
	buf_puts(b, "\tcvt.u32.u64 %mask, %mask64;\n");
	if (update) {
		put_arg(b, h, "limit");
		put_arg(b, h, "flags");
	}
	put_memory_arg(b, h, "key", h->key_words, h->key);
	if (update)
		put_memory_arg(b, h, "value", h->value_words, h->value);
	put_hash(b, h);
	buf_puts(b, "\tadd.s64 %data, %image, 128;\n\tand.b32 %i, %h, %mask;\n\tmov.u32 %left, "
		    "%mask;\n");
}

/* Loads the slot's word and takes it apart. */
static void put_slot(struct buf *b, const struct hash *h)
{
	buf_printf(b,
		"\tmul.wide.u32 %%d, %%i, %u;\n\tadd.s64 %%slot, %%data, %%d;\n"
		"\tld.volatile.global.u64 %%w, [%%slot];\n\tmov.b64 {%%st, %%hs}, %%w;\n",
		h->slot);
}

/* The next slot; leaves the loop when all have been seen. */
static void put_advance(struct buf *b)
{
	buf_puts(b, "\tadd.u32 %i, %i, 1;\n\tand.b32 %i, %i, %mask;\n");
}

/* -- as a function -- */

static void put_func(struct buf *b, const char *name, const struct hash *h, bool update)
{
	buf_printf(b, ".func (.param .b64 result) %s(.param .b64 image, .param .b64 mask64%s", name,
		update ? ", .param .b64 limit, .param .b64 flags" : "");
	put_params(b, "key", h->key_words, h->key);
	if (update)
		put_params(b, "value", h->value_words, h->value);
	buf_puts(b, ")\n");
}

static void call_func(struct tr *t, const struct hash *h, const char *what, void (*put)(struct buf *b, struct hash *h),
	bool update, const struct tr_name *args, uint32_t n, struct tr_name result)
{
	struct buf b = { 0 };
	struct hash body = *h;
	char name[64];
	snprintf(name, sizeof(name), "__egpu_hash_%s_k%u_v%u", what, h->key, h->value);
	put_func(&b, name, h, update);
	put(&b, &body);
	buf_puts(&b, "\tst.param.b64 [result], %r;\n\tret;\n}\n");
	const char *added = b.failed ? "" : tr_func_add(t, name, &b);
	t->body.failed |= b.failed;
	buf_free(&b);
	tr_emit_call(t, added, result.s, args, n);
}

/* -- inline -- */

/* The text in a scope of the body: its labels and registers get names that nothing else there has. */
static void add_inline(struct tr *t, const char *text)
{
	uint32_t n = t->n_labels++;
	const char *from = text;
	for (const char *p = text; *p; p++) {
		bool label = *p == '$', reg = *p == '%' && strncmp(p, "%egpu_", 6);
		if (!label && !reg)
			continue;
		if (label && !strncmp(p, "$egpu_", 6))
			continue;
		buf_add(&t->body, from, (size_t)(p - from));
		if (label)
			buf_printf(&t->body, "$egpu_h%u_", n);
		else
			buf_puts(&t->body, "%egpu_h");
		from = p + 1;
	}
	buf_puts(&t->body, from);
}

static void emit_inline(struct tr *t, const struct hash *h, void (*put)(struct buf *b, struct hash *h), const struct tr_name *args,
	struct tr_name result)
{
	struct buf b = { 0 };
	struct hash body = *h;
	body.args = args;
	put(&b, &body);
	buf_printf(&b, "\tmov.b64 %s, %%r;\n}\n", result.s);
	t->body.failed |= b.failed;
	if (!b.failed)
		add_inline(t, b.data);
	buf_free(&b);
}

/* Operations of the program on hash maps of any kind; of those, insertions. */
static void count_calls(struct tr *t)
{
	for (size_t k = 0; !t->hash_calls && k < t->n_insts; k++)
		for (uint32_t i = 0; i < t->insts[k]->n; i++) {
			const struct bpf_insn *in = tr_bpf(t, t->insts[k], i);
			const struct ebpf_map *m = tr_is_call(in) && !in->src_reg ? tr_map_arg(t, t->insts[k], i) : NULL;
			if (!m || m->type != BPF_MAP_TYPE_HASH)
				continue;
			t->hash_calls++;
			t->hash_updates += in->imm == BPF_FUNC_map_update_elem;
		}
}

static void emit(struct tr *t, const struct ebpf_map *m, const char *what, void (*put)(struct buf *b, struct hash *h), bool update,
	const struct tr_name *args, uint32_t n, struct tr_name result)
{
	struct hash h = hash_of(m);
	count_calls(t);
	bool small = h.key <= TR_INLINE_KEY && (!update || h.value <= TR_INLINE_KEY);
	if (small && t->hash_calls <= TR_INLINE_CALLS && (!update || t->hash_updates == 1))
		emit_inline(t, &h, put, args, result);
	else
		call_func(t, &h, what, put, update, args, n, result);
}

/* -- the operations: each leaves its answer in %r -- */

/* Walks to the live slot of the key: falls through to $found with %slot and %w, or goes to $done
 * with %r = 0. */
static void put_find(struct buf *b, const struct hash *h)
{
	buf_puts(b, "$probe:\n");
	put_slot(b, h);
	buf_puts(b,
		"\tsetp.eq.u32 %p, %st, 0;\n\t@%p bra $done;\n" /* empty: no such key */
		"\tsetp.ne.u32 %p, %hs, %h;\n\tsetp.ne.or.u32 %p, %st, 2, %p;\n\t@%p bra $next;\n");
	put_compare(b, h);
	buf_puts(b, "\t@%same bra $found;\n$next:\n");
	put_advance(b);
	buf_puts(b, "\tsetp.eq.u32 %p, %left, 0;\n\tsub.u32 %left, %left, 1;\n\t@!%p bra "
		    "$probe;\n\tbra $done;\n$found:\n");
}

static void put_lookup(struct buf *b, struct hash *h)
{
	put_start(b, h, false);
	buf_puts(b, "\tmov.u64 %r, 0;\n");
	put_find(b, h);
	buf_printf(b, "\tadd.s64 %%r, %%slot, %u;\n$done:\n", value_at(h));
}

void tr_hash_lookup(struct tr *t, const struct ebpf_map *m, const struct tr_name *args, uint32_t n, struct tr_name result)
{
	emit(t, m, "lookup", put_lookup, false, args, n, result);
}

/* A key that another thread deletes first, or that is being inserted, was not there. */
static void put_delete(struct buf *b, struct hash *h)
{
	put_start(b, h, false);
	buf_puts(b, "\tmov.u64 %r, -2;\n");
	put_find(b, h);
	buf_puts(b,
		"\tsub.s64 %d, %w, 1;\n" /* live to busy */
		"\tatom.global.cas.b64 %d, [%slot], %w, %d;\n\tsetp.ne.u64 %p, %d, %w;\n\t@%p bra "
		"$done;\n"
		"\tred.global.add.u64 [%image+40], -1;\n"
		"\tmembar.gl;\n" /* the count before the dead state */
		"\tadd.s64 %d, %w, 1;\n\tst.volatile.global.u64 [%slot], %d;\n\tmov.u64 %r, 0;\n"
		"$done:\n");
}

void tr_hash_delete(struct tr *t, const struct ebpf_map *m, const struct tr_name *args, uint32_t n, struct tr_name result)
{
	emit(t, m, "delete", put_delete, false, args, n, result);
}

/* Reserves room and claims the slot whose word is %w; writes and publishes it. Ends at $latch. */
static void put_insert(struct buf *b, const struct hash *h)
{
	buf_puts(b,
		"$insert:\n"
		"\tsetp.eq.u64 %p, %flags, 2;\n\t@%p mov.u64 %r, -2;\n\t@%p bra $latch;\n"
		"\tld.volatile.global.u64 %e, [%image+40];\n\tmov.b64 {%lo, %hi}, %e;\n"
		"\tcvt.u64.u32 %d, %lo;\n\tsetp.ge.u64 %p, %d, %limit;\n\t@%p bra $full;\n"
		"\tcvt.u64.u32 %room, %hi;\n\tadd.s64 %room, %room, %d;\n"
		"\tsetp.ge.u64 %p, %room, %limit;\n\t@%p bra $latch;\n" /* others are at it: wait */
		/* Far from the limit an addition reserves at once; near it, or after one that
		   overshot, compare-and-swap. */
		"\tshl.b64 %room, %room, 1;\n\tsetp.lt.and.u64 %q, %room, %limit, %fast;\n"
		"\t@%q bra $reserve;\n"
		"\tadd.s64 %d, %e, 0x100000000;\n\tatom.global.cas.b64 %d, [%image+40], %e, %d;\n"
		"\tsetp.ne.u64 %p, %d, %e;\n\tbra $reserved;\n"
		"$reserve:\n"
		"\tatom.global.add.u64 %e, [%image+40], 0x100000000;\n\tmov.b64 {%lo, %hi}, %e;\n"
		"\tcvt.u64.u32 %d, %lo;\n\tcvt.u64.u32 %room, %hi;\n\tadd.s64 %room, %room, %d;\n"
		"\tsetp.ge.u64 %p, %room, %limit;\n\tsetp.ne.u32 %fast, %h, %h;\n"
		"\t@%p red.global.add.u64 [%image+40], 0xffffffff00000000;\n"
		"$reserved:\n"
		"\t@%p bra $latch;\n"
		"\tmov.u32 %t, 1;\n\tmov.b64 %e, {%t, %h};\n"
		"\tatom.global.cas.b64 %d, [%slot], %w, %e;\n\tsetp.ne.u64 %p, %d, %w;\n"
		"\t@%p red.global.add.u64 [%image+40], 0xffffffff00000000;\n\t@%p bra $latch;\n");
	put_write(b, "key", "$write_key", h->key_words, h->key, 8);
	put_write(b, "value", "$write_value", h->value_words, h->value, value_at(h));
	buf_puts(b,
		"\tred.global.add.u64 [%image+40], 0xffffffff00000001;\n" /* under way - 1, keys + 1
									   */
		"\tmembar.gl;\n" /* key, value and count before the live state */
		"\tmov.u32 %t, 2;\n\tmov.b64 %e, {%t, %h};\n\tst.volatile.global.u64 [%slot], %e;\n"
		"\tmov.u64 %r, 0;\n\tbra $latch;\n"
		"$full:\n" /* the slot unchanged: all those keys are others */
		"\tld.volatile.global.u64 %d, [%slot];\n\tsetp.ne.u64 %p, %d, %w;\n\t@%p bra "
		"$latch;\n"
		/* A dead slot may have been taken and left between the two looks: look again some
		   times. */
		"\tsetp.eq.u32 %p, %st, 3;\n\tsetp.ne.and.u32 %p, %looks, 0, %p;\n"
		"\t@%p sub.u32 %looks, %looks, 1;\n\t@%p bra $latch;\n"
		"\tmov.u64 %r, -7;\n\tbra $latch;\n");
}

/* %r is 1 until the answer is known. */
static void put_update(struct buf *b, struct hash *h)
{
	put_start(b, h, true);
	buf_printf(b,
		"\tsetp.eq.u32 %%fast, %%h, %%h;\n\tmov.u32 %%spins, %u;\n\tmov.u32 %%looks, "
		"%u;\n\tmov.u64 %%r, 1;\n"
		"\tsetp.gt.u64 %%p, %%flags, 2;\n\t@%%p mov.u64 %%r, -22;\n\t@%%p bra $done;\n"
		"$probe:\n",
		SPINS, LOOKS);
	put_slot(b, h);
	buf_puts(b, "\tsetp.eq.u32 %p, %st, 0;\n\t@%p bra $insert;\n"
		     "\tsetp.ne.u32 %p, %hs, %h;\n\t@%p bra $step;\n"
		     "\tsetp.eq.u32 %p, %st, 1;\n\t@%p bra $latch;\n"); /* being written, may be our
									   key: wait */
	put_compare(b, h);
	buf_puts(b, "\t@!%same bra $step;\n"
		     "\tsetp.eq.u32 %p, %st, 3;\n\t@%p bra $insert;\n" /* dead: only this key takes
									  it again */
		     "\tsetp.eq.u64 %p, %flags, 1;\n\t@%p mov.u64 %r, -17;\n\t@%p bra $latch;\n");
	put_write(b, "value", "$overwrite", h->value_words, h->value, value_at(h));
	buf_puts(b, "\tmov.u64 %r, 0;\n\tbra $latch;\n");
	put_insert(b, h);
	buf_puts(b, "$step:\n");
	put_advance(b);
	buf_puts(b,
		"\tsetp.eq.u32 %p, %left, 0;\n\tsub.u32 %left, %left, 1;\n\t@%p mov.u64 %r, "
		"-7;\n\tbra $end;\n"
		"$latch:\n"
		"\tsub.u32 %spins, %spins, 1;\n\tsetp.eq.u32 %p, %spins, 0;\n\tsetp.eq.and.u64 %p, "
		"%r, 1, %p;\n"
		"\t@%p mov.u64 %r, -16;\n"
		"$end:\n"
		"\tsetp.eq.u64 %p, %r, 1;\n\t@%p bra $probe;\n"
		"\tsetp.eq.u64 %p, %r, -7;\n\tsetp.eq.u64 %q, %r, -16;\n\tor.pred %p, %p, %q;\n"
		"\t@%p red.global.add.u64 [%image+32], 1;\n"
		"$done:\n");
}

void tr_hash_update(struct tr *t, const struct ebpf_map *m, const struct tr_name *args, uint32_t n, struct tr_name result)
{
	emit(t, m, "update", put_update, true, args, n, result);
}
