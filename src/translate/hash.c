/* hash.c - operations on hash maps (map/layout.h), specialised by key and value size: inline where keys are small and calls few, else
 * module-scope functions, which all sites of a kernel share.
 *
 * A slot's first 64 bits, u32 state | u32 hash << 32, change as one word or by atomics on the state:
 *
 *	empty --CAS--> busy --(key, value, count, membar.gl)--> live
 *	live  --CAS--> busy --(count, membar.gl)--> empty
 *
 * Keys of one home (the slot that their hash leads to) lie at most `reach` slots behind it, a number in
 * the home's state. A look-up walks that far and no further, whatever is empty on the way; so a deleted
 * key leaves a slot that any key may take, and the walk does not grow with the keys that came and went.
 *
 * No key twice: whoever inserts holds the lock bit of the key's home, and has looked again, under it, at all
 * slots of its reach. Taking it is an acquire (CAS, membar.gl), giving it back a release (membar.gl before), so the look
 * sees the keys that earlier holders wrote. It is never waited for while anything is held: who does not get it goes
 * to the end of the pass and starts again. The claim of an empty slot is a CAS of the whole word, so that inserters of
 * different homes get different slots; a home's reach is raised before the key is live. No key lost: keys do not move.
 *
 * The image's `live` word: keys in the low half, insertions under way in the high half. An
 * insertion reserves its room (keys + under way < max_entries) before it claims a slot, so that the
 * map never holds more. A key is counted while its slot is live, from before it becomes so until
 * before it is empty; hence whoever finds max_entries keys counted and then, in a whole walk, neither its key nor
 * a busy slot of its hash, has max_entries other keys against it: the map is full. Unless its key was one of them, and was deleted in
 * between: then `deleted`, which is counted before the slot is empty, has changed, and it looks again, some times.
 *
 * Maps that all programs only fold into, and in which no program deletes or overwrites, may have values on each multiprocessor, in which
 * look-ups give addresses (map/layout.h). Insertions go into the slot.
 *
 * LRU maps: a look-up that finds a key sets MAP_SLOT_USED. Who finds no room takes out a live key, the first from its home on
 * that was not used since another came by here; it clears the bits that it passes. Nothing waits, nothing is refused.
 *
 * Waiting is bounded, and each pass of an update ends in one place, that of the one who has just got a lock too: lanes of a warp that
 * wait for another lane's insertion let it finish its pass first, and the next, in which it inserts, also on hardware that runs the
 * lanes of a warp in lockstep.
 *
 * Every access to a slot is volatile or atomic, "strong" in the words of PTX's memory consistency model, so there is no data race in it; but for
 * the looks of put_near_scan, which are strong within a block alone, and take for true only what stays true.
 * Look-ups take no acquire, which on sm_70 and later would empty the L1 cache each time (docs/decisions.md says what
 * this rests on).
 */
#include "translate/internal.h"

#include <string.h>

enum { MAX_ARGS = 32, SPINS = 1 << 18, EVICT_LOOKS = 512, FULL_LOOKS = 16 };

struct hash {
	uint32_t key, value, slot;   /* bytes; slot: of a whole slot */
	bool key_words, value_words; /* passed by value, in 8-byte words; else by generic address */
	const struct tr_name *args;  /* inline: image, mask, of an update limit and flags, key, value; NULL: a function */
	uint32_t arg;                /* the next */
	bool lru, per_cpu;
	bool near;	  /* a look-up in a map that may have values on each multiprocessor: `own` is this one's, or 0 */
	uint32_t entries; /* per-CPU: max_entries, else 0 */
	struct tr_name lost; /* how many updates one that fails stands for */
	bool weighed;	  /* that is an argument of functions, the last */
	bool begins;	  /* an update that leaves a key which is there as it is, and answers with its value's address, else 0 (begin.c) */
};

static struct hash hash_of(const struct ebpf_map *m)
{
	bool per_cpu = map_is_per_cpu(m->type);
	return (struct hash){ .key = m->key_size, .value = m->value_size,
		.slot = map_hash_slot_bytes(m->type, m->key_size, m->value_size),
		.lost = tr_text("1"), .key_words = m->key_size <= TR_BY_VALUE,
		.value_words = m->value_size <= TR_BY_VALUE,
		.lru = map_is_lru(m->type), .per_cpu = per_cpu,
		.entries = per_cpu ? m->max_entries : 0 };
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

/* %same = the slot's key equals ours. One of several words may be another key's by halves when the slot changed hands meanwhile: then
 * the word of the slot has changed too. */
static void put_compare(struct buf *b, const struct hash *h)
{
	buf_puts(b, "\tsetp.eq.u32 %same, %h, %h;\n");
	for (uint32_t k = 0; h->key_words && k < words(h->key); k++) {
		buf_printf(b, "\tld.volatile.global.u64 %%d, [%%slot+%u];\n", 8 + 8 * k);
		if (8 * k + 8 > h->key)
			buf_printf(b, "\tand.b64 %%d, %%d, 0x%llx;\n", (1ull << (8 * (h->key % 8))) - 1);
		buf_printf(b, "\tsetp.eq.and.u64 %%same, %%d, %%key%u, %%same;\n", k);
	}
	if (!h->key_words)
		buf_printf(b,
			"\tmov.u32 %%n, 0;\n"
			"$compare:\n"
			"\tcvt.u64.u32 %%d, %%n;\n\tadd.s64 %%e, %%at_key, %%d;\n\tadd.s64 %%d, %%slot, "
			"%%d;\n"
			"\tld.u8 %%t, [%%e];\n\tld.volatile.global.u8 %%lo, [%%d+8];\n"
			"\tsetp.eq.u32 %%same, %%t, %%lo;\n\tadd.u32 %%n, %%n, 1;\n"
			"\tsetp.lt.and.u32 %%p, %%n, %u, %%same;\n\t@%%p bra $compare;\n",
			h->key);
	if (h->key > 8)
		buf_printf(b,
			"\tld.volatile.global.u64 %%d, [%%slot];\n\txor.b64 %%d, %%d, %%w;\n"
			"\tand.b64 %%d, %%d, 0x%llx;\n\tsetp.eq.and.u64 %%same, %%d, 0, %%same;\n",
			0xffffffff00000000ull | MAP_SLOT_STATE);
}

/* Stores the key (word by word, padding zero) or the value at %at + offset. */
static void put_write(struct buf *b, const char *name, const char *label, const char *at, bool by_value,
	uint32_t bytes, uint32_t offset)
{
	if (by_value) {
		for (uint32_t k = 0; k < words(bytes); k++)
			buf_printf(b, "\tst.volatile.global.u64 [%%%s+%u], %%%s%u;\n", at, offset + 8 * k,
				name, k);
		return;
	}
	buf_printf(b,
		"\tmov.u32 %%n, 0;\n"
		"%s:\n"
		"\tcvt.u64.u32 %%d, %%n;\n\tadd.s64 %%e, %%at_%s, %%d;\n\tadd.s64 %%d, %%%s, "
		"%%d;\n"
		"\tld.u8 %%t, [%%e];\n\tst.volatile.global.u8 [%%d+%u], %%t;\n"
		"\tadd.u32 %%n, %%n, 1;\n\tsetp.lt.u32 %%p, %%n, %u;\n\t@%%p bra %s;\n",
		label, name, at, offset, bytes, label);
}

/* %value_at = the value of slot %i. */
static void put_value_at(struct buf *b, const struct hash *h)
{
	if (!h->per_cpu) {
		buf_printf(b, "\tadd.s64 %%value_at, %%slot, %u;\n", 8 + 8 * words(h->key));
		if (h->near)
			buf_printf(b,
				"\tmul.wide.u32 %%d, %%i, %u;\n\tadd.s64 %%d, %%own, %%d;\n"
				"\tsetp.ne.u64 %%p, %%own, 0;\n\tselp.b64 %%value_at, %%d, %%value_at, %%p;\n",
				8 * words(h->value));
		return;
	}
	buf_printf(b,
		"\tmul.lo.s64 %%d, %%cpu, %llu;\n\tadd.s64 %%value_at, %%data, %%d;\n"
		"\tmul.wide.u32 %%d, %%i, %u;\n\tadd.s64 %%value_at, %%value_at, %%d;\n"
		"\tadd.s64 %%value_at, %%value_at, %llu;\n",
		(unsigned long long)map_hash_replica_bytes(h->value, h->entries), 8 * words(h->value),
		(unsigned long long)map_hash_slots_bytes(h->key, h->entries));
}

/* The values of a new key on all multiprocessors: others may have had the slot. */
static void put_zero_replicas(struct buf *b, const struct hash *h)
{
	buf_printf(b,
		"\tmul.wide.u32 %%e, %%i, %u;\n\tadd.s64 %%e, %%data, %%e;\n"
		"\tadd.s64 %%e, %%e, %llu;\n\tld.volatile.global.u32 %%n, [%%image+20];\n"
		"$replica:\n\tmov.u32 %%t, 0;\n"
		"$zero:\n\tcvt.u64.u32 %%d, %%t;\n\tadd.s64 %%d, %%e, %%d;\n"
		"\tst.volatile.global.u64 [%%d], 0;\n\tadd.u32 %%t, %%t, 8;\n"
		"\tsetp.lt.u32 %%p, %%t, %u;\n\t@%%p bra $zero;\n"
		"\tadd.s64 %%e, %%e, %llu;\n\tsub.u32 %%n, %%n, 1;\n"
		"\tsetp.ne.u32 %%p, %%n, 0;\n\t@%%p bra $replica;\n",
		8 * words(h->value), (unsigned long long)map_hash_slots_bytes(h->key, h->entries),
		8 * words(h->value), (unsigned long long)map_hash_replica_bytes(h->value, h->entries));
}

/* Registers, arguments and the hash. */
static void put_start(struct buf *b, struct hash *h, bool update)
{
	buf_puts(b, "{\n\t.reg .pred %p, %q, %same, %fast, %busy, %locked, %full;\n"
		    "\t.reg .b32 %t, %h, %lo, %hi, %n, %sh, %i, %left, %mask, %st, %hs, %spins, %looks, %reach, %far;\n"
		    "\t.reg .b64 %d, %e, %image, %data, %slot, %home, %w, %hw, %r, %at_key, %at_value, %flags, "
		    "%limit, %mask64, %room, %value_at, %cpu, %was, %there, %own;\n");
	buf_puts(b, "\t.reg .b64 %key<8>, %value<8>;\n");
	put_arg(b, h, "image");
	put_arg(b, h, "mask64");
	if (h->per_cpu)
		put_arg(b, h, "cpu");
	if (h->near)
		put_arg(b, h, "own");
	buf_puts(b, "\tcvt.u32.u64 %mask, %mask64;\n");
	if (update) {
		put_arg(b, h, "limit");
		put_arg(b, h, "flags");
	}
	put_memory_arg(b, h, "key", h->key_words, h->key);
	if (update)
		put_memory_arg(b, h, "value", h->value_words, h->value);
	if (h->weighed && !h->args)
		buf_puts(b, "\t.reg .b64 %lost;\n\tld.param.b64 %lost, [lost];\n");
	put_hash(b, h);
	buf_puts(b, "\tadd.s64 %data, %image, 128;\n");
}

/* %slot = slot %i. */
static void put_slot_at(struct buf *b, const struct hash *h)
{
	buf_printf(b, "\tmul.wide.u32 %%d, %%i, %u;\n\tadd.s64 %%slot, %%data, %%d;\n", h->slot);
}

/* The word of slot %i, taken apart. */
static void put_slot(struct buf *b, const struct hash *h)
{
	put_slot_at(b, h);
	buf_puts(b, "\tld.volatile.global.u64 %w, [%slot];\n\tmov.b64 {%st, %hs}, %w;\n");
}

/* A load that the first-level cache may answer. */
static void put_near_load(struct buf *b, const char *to, const char *at)
{
	buf_printf(b, "#if ptx 6.0 sm 70\n\tld.relaxed.cta.global.u64 %s, [%s];\n#else\n\tld.volatile.global.u64 %s, [%s];\n#endif\n", to, at, to, at);
}

static void put_near_slot(struct buf *b, const struct hash *h)
{
	put_slot_at(b, h);
	put_near_load(b, "%w", "%slot");
	buf_puts(b, "\tmov.b64 {%st, %hs}, %w;\n");
}

static void put_next(struct buf *b)
{
	buf_puts(b, "\tadd.u32 %i, %i, 1;\n\tand.b32 %i, %i, %mask;\n");
}

/* -- as a function -- */

static void put_func(struct buf *b, const char *name, const struct hash *h, bool update)
{
	buf_printf(b, ".func (.param .b64 result) %s(.param .b64 image, .param .b64 mask64%s%s", name,
		h->per_cpu ? ", .param .b64 cpu" : h->near ? ", .param .b64 own" : "", update ? ", .param .b64 limit, .param .b64 flags" : "");
	put_params(b, "key", h->key_words, h->key);
	if (update)
		put_params(b, "value", h->value_words, h->value);
	buf_puts(b, h->weighed ? ", .param .b64 lost)\n" : ")\n");
}

/* The proofs want an address apart from numbers. */
static const char *answer(const struct hash *h)
{
	return h->begins ? "%there" : "%r";
}

static void call_func(struct tr *t, const struct hash *h, const char *what, void (*put)(struct buf *b, struct hash *h),
	bool update, const struct tr_name *args, uint32_t n, struct tr_name result)
{
	struct buf b = { 0 };
	struct hash body = *h;
	struct tr_name all[MAX_ARGS];
	char name[96];
	int n_name = snprintf(name, sizeof(name), "__egpu_hash_%s%s%s%s_k%u_v%u", h->lru ? "lru_" : "", h->near ? "near_" : "", h->weighed ? "weighed_" : "", what, h->key, h->value);
	if (h->per_cpu)
		snprintf(name + n_name, sizeof(name) - (size_t)n_name, "_n%u", h->entries);
	put_func(&b, name, h, update);
	body.lost = h->weighed ? tr_text("%lost") : h->lost;
	put(&b, &body);
	buf_printf(&b, "\tst.param.b64 [result], %s;\n\tret;\n}\n", answer(&body));
	const char *added = b.failed ? "" : tr_func_add(t, name, &b);
	t->body.failed |= b.failed;
	buf_free(&b);
	memcpy(all, args, n * sizeof(*all));
	all[n] = h->lost;
	tr_emit_call(t, added, result.s, all, n + h->weighed);
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
	buf_printf(&b, "\tmov.b64 %s, %s;\n}\n", result.s, answer(&body));
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
			if (!m || !map_is_hash(m->type))
				continue;
			t->hash_calls++;
			t->hash_updates += in->imm == BPF_FUNC_map_update_elem;
		}
}

static bool stands_inline(struct tr *t, const struct hash *h, bool update)
{
	count_calls(t);
	return h->key <= TR_INLINE_KEY && (!update || h->value <= TR_INLINE_KEY) && t->hash_calls <= TR_INLINE_CALLS &&
	       (!update || t->hash_updates == 1);
}

bool tr_hash_update_inline(struct tr *t, const struct ebpf_map *m)
{
	struct hash h = hash_of(m);
	return stands_inline(t, &h, true);
}

static void put_lookup(struct buf *b, struct hash *h);

static void emit(struct tr *t, const struct ebpf_map *m, const char *what, void (*put)(struct buf *b, struct hash *h), bool update,
	const struct tr_name *args, uint32_t n, struct tr_name result)
{
	struct hash h = hash_of(m);
	h.near = put == put_lookup && tr_only_folds(t, m);
	if (t->once)
		h.lost = t->threads64;
	h.weighed = update && tr_weighs(t, m);
	h.lost = h.weighed ? tr_weigh(t, h.lost) : h.lost;
	h.begins = !strcmp(what, "begin");
	if (stands_inline(t, &h, update))
		emit_inline(t, &h, put, args, result);
	else
		call_func(t, &h, what, put, update, args, n, result);
}

/* -- the operations: each leaves its answer in %r -- */

/* Walks the reach of the key's home, from $scan: falls through to $found with %slot, %i and its word in %w, or goes to $absent. %home
 * and %hw are the home and its word, %busy that a slot of this hash is being written. */
static void put_scan(struct buf *b, const struct hash *h)
{
	buf_puts(b, "$scan:\n\tand.b32 %i, %h, %mask;\n");
	put_slot(b, h);
	buf_printf(b,
		"\tmov.b64 %%home, %%slot;\n\tmov.b64 %%hw, %%w;\n\tshr.u32 %%reach, %%st, %d;\n"
		"\tmov.u32 %%left, %%reach;\n\tsetp.ne.u32 %%busy, %%h, %%h;\n"
		"$probe:\n"
		"\tand.b32 %%t, %%st, %d;\n\tsetp.eq.u32 %%q, %%hs, %%h;\n"
		"\tsetp.eq.and.u32 %%p, %%t, %d, %%q;\n\tor.pred %%busy, %%busy, %%p;\n"
		"\tsetp.eq.and.u32 %%p, %%t, %d, %%q;\n\t@!%%p bra $next;\n",
		MAP_SLOT_REACH, MAP_SLOT_STATE, MAP_SLOT_BUSY, MAP_SLOT_LIVE);
	put_compare(b, h);
	buf_puts(b, "\t@%same bra $found;\n$next:\n"
		    "\tsetp.eq.u32 %p, %left, 0;\n\t@%p bra $absent;\n\tsub.u32 %left, %left, 1;\n");
	put_next(b);
	put_slot(b, h);
	buf_puts(b, "\tbra $probe;\n$found:\n");
}

static void put_touch(struct buf *b, const struct hash *h)
{
	if (h->lru)
		buf_printf(b,
			"\tand.b32 %%t, %%st, %d;\n\tsetp.eq.u32 %%p, %%t, 0;\n"
			"\t@%%p red.global.or.b32 [%%slot], %d;\n",
			MAP_SLOT_USED, MAP_SLOT_USED);
}

/* The same walk through the first-level cache, which all warps of a multiprocessor that look for one key share. It may be old: a slot that it
 * shows live is, since keys do not go where values are folded only (the host takes them out when nothing runs), and the key's word that it
 * shows is that of the slot or all ones (map/layout.h). Another key of the same hash, which keys of 4 bytes do not have, is told from ours by
 * it, unless ours is all ones. What the walk does not find is looked for once more. */
static void put_near_scan(struct buf *b, const struct hash *h)
{
	if (!h->near || h->key > 8)
		return;
	uint64_t ones = h->key < 8 ? (1ull << (8 * h->key)) - 1 : UINT64_MAX;
	buf_puts(b, "\tsetp.eq.u64 %p, %own, 0;\n");
	if (h->key > 4)
		buf_printf(b, "\tsetp.eq.or.u64 %%p, %%key0, 0x%llx, %%p;\n", (unsigned long long)ones);
	buf_puts(b, "\t@%p bra $scan;\n\tand.b32 %i, %h, %mask;\n");
	put_near_slot(b, h);
	buf_printf(b,
		"\tshr.u32 %%left, %%st, %d;\n"
		"$near:\n\tand.b32 %%t, %%st, %d;\n",
		MAP_SLOT_REACH, MAP_SLOT_STATE);
	put_near_load(b, "%d", "%slot+8");
	if (h->key < 8)
		buf_printf(b, "\tand.b64 %%d, %%d, 0x%llx;\n", (unsigned long long)ones);
	buf_printf(b,
		"\tsetp.eq.u32 %%q, %%hs, %%h;\n\tsetp.eq.and.u32 %%p, %%t, %d, %%q;\n"
		"\tsetp.eq.and.u64 %%p, %%d, %%key0, %%p;\n\t@%%p bra $found;\n"
		"\tsetp.eq.u32 %%p, %%left, 0;\n\t@%%p bra $scan;\n\tsub.u32 %%left, %%left, 1;\n",
		MAP_SLOT_LIVE);
	put_next(b);
	put_near_slot(b, h);
	buf_puts(b, "\tbra $near;\n");
}

static void put_lookup(struct buf *b, struct hash *h)
{
	put_start(b, h, false);
	buf_puts(b, "\tmov.u64 %r, 0;\n");
	put_near_scan(b, h);
	put_scan(b, h);
	put_touch(b, h);
	put_value_at(b, h);
	buf_puts(b, "\tmov.b64 %r, %value_at;\n$absent:\n");
}

void tr_hash_lookup(struct tr *t, const struct ebpf_map *m, const struct tr_name *args, uint32_t n, struct tr_name result)
{
	emit(t, m, "lookup", put_lookup, false, args, n, result);
}

/* Takes the key out of the live slot whose word is %w; %p: others were faster. */
static void put_take(struct buf *b)
{
	buf_printf(b,
		"\tand.b32 %%t, %%st, 0x%x;\n\tor.b32 %%t, %%t, %d;\n\tmov.b64 %%e, {%%t, %%hs};\n"
		"\tatom.global.cas.b64 %%d, [%%slot], %%w, %%e;\n\tsetp.ne.u64 %%p, %%d, %%w;\n",
		~(uint32_t)(MAP_SLOT_STATE | MAP_SLOT_USED), MAP_SLOT_BUSY);
}

static void put_empty(struct buf *b)
{
	buf_puts(b, "\tred.global.add.u64 [%image+40], -1;\n"
		    "\tred.global.add.u64 [%image+64], 1;\n"
		    "\tmembar.gl;\n" /* the counts before the empty state */
		    "\tred.global.add.u32 [%slot], 0xffffffff;\n");
}

/* A key that another thread deletes first, or that is being inserted, was not there. The word changes also when others lock or raise the
 * reach of what is at home here: then look again. */
static void put_delete(struct buf *b, struct hash *h)
{
	put_start(b, h, false);
	buf_printf(b, "\tmov.u64 %%r, -2;\n\tmov.u32 %%spins, %u;\n", SPINS);
	put_scan(b, h);
	put_take(b);
	buf_puts(b, "\t@!%p bra $taken;\n\tsub.u32 %spins, %spins, 1;\n\tsetp.ne.u32 %p, %spins, 0;\n"
		    "\t@%p bra $scan;\n\tmov.u64 %r, -16;\n\tbra $absent;\n$taken:\n");
	put_empty(b);
	buf_puts(b, "\tmov.u64 %r, 0;\n$absent:\n");
}

void tr_hash_delete(struct tr *t, const struct ebpf_map *m, const struct tr_name *args, uint32_t n, struct tr_name result)
{
	emit(t, m, "delete", put_delete, false, args, n, result);
}

/* Nothing is there and nobody holds the home: takes its lock and looks again. */
static void put_lock(struct buf *b, const struct hash *h)
{
	if (!h->lru)
		buf_puts(b, "\t@%full bra $again;\n"
			    "\tld.volatile.global.u64 %was, [%image+64];\n"
			    "\tld.volatile.global.u64 %e, [%image+40];\n\tmov.b64 {%lo, %hi}, %e;\n"
			    "\tcvt.u64.u32 %d, %lo;\n\tsetp.lt.u64 %p, %d, %limit;\n\t@%p bra $lock;\n"
			    "\tsetp.eq.u32 %full, %h, %h;\n"
			    "\tmembar.gl;\n" /* the count, then the walk that finds no key */
			    "\tbra $latch;\n"
			    "$again:\n"
			    "\tmembar.gl;\n" /* the walk, then the deletions */
			    "\tld.volatile.global.u64 %d, [%image+64];\n\tsetp.eq.u64 %p, %d, %was;\n"
			    "\tsetp.eq.or.u32 %p, %looks, 0, %p;\n\t@%p mov.u64 %r, -7;\n"
			    "\tsub.u32 %looks, %looks, 1;\n\tbra $retry;\n$lock:\n");
	buf_printf(b,
		"\tmov.b64 {%%lo, %%hi}, %%hw;\n\tand.b32 %%t, %%lo, %d;\n\tsetp.ne.u32 %%p, %%t, 0;\n"
		"\t@%%p bra $retry;\n\tor.b32 %%lo, %%lo, %d;\n\tmov.b64 %%e, {%%lo, %%hi};\n"
		"\tatom.global.cas.b64 %%d, [%%home], %%hw, %%e;\n\tsetp.ne.u64 %%p, %%d, %%hw;\n"
		"\t@%%p bra $retry;\n"
		"\tmembar.gl;\n" /* acquires what earlier holders did */
		"\tsetp.eq.u32 %%locked, %%h, %%h;\n\tbra $latch;\n",
		MAP_SLOT_LOCK, MAP_SLOT_LOCK);
}

/* Reserves room, or goes to $no_room (nothing changed) or $unlock (try again). Far from the limit an addition reserves at once; near
 * it, or after one that overshot, compare-and-swap. */
static void put_reserve(struct buf *b)
{
	buf_puts(b,
		"$reserve:\n"
		"\tld.volatile.global.u64 %e, [%image+40];\n\tmov.b64 {%lo, %hi}, %e;\n"
		"\tcvt.u64.u32 %d, %lo;\n\tcvt.u64.u32 %room, %hi;\n\tadd.s64 %room, %room, %d;\n"
		"\tsetp.ge.u64 %p, %room, %limit;\n\t@%p bra $no_room;\n"
		"\tshl.b64 %room, %room, 1;\n\tsetp.lt.and.u64 %q, %room, %limit, %fast;\n"
		"\t@%q bra $add;\n"
		"\tadd.s64 %d, %e, 0x100000000;\n\tatom.global.cas.b64 %d, [%image+40], %e, %d;\n"
		"\tsetp.ne.u64 %p, %d, %e;\n\tbra $reserved;\n"
		"$add:\n"
		"\tatom.global.add.u64 %e, [%image+40], 0x100000000;\n\tmov.b64 {%lo, %hi}, %e;\n"
		"\tcvt.u64.u32 %d, %lo;\n\tcvt.u64.u32 %room, %hi;\n\tadd.s64 %room, %room, %d;\n"
		"\tsetp.ge.u64 %p, %room, %limit;\n\tsetp.ne.u32 %fast, %h, %h;\n"
		"\t@%p red.global.add.u64 [%image+40], 0xffffffff00000000;\n"
		"$reserved:\n"
		"\t@%p bra $unlock;\n");
}

/* Claims the first empty slot from the home on: %slot, %i; %far: how far behind it. */
static void put_claim(struct buf *b, const struct hash *h)
{
	buf_puts(b, "\tand.b32 %i, %h, %mask;\n\tmov.u32 %far, 0;\n$claim:\n");
	put_slot(b, h);
	buf_printf(b,
		"\tand.b32 %%t, %%st, %d;\n\tsetp.ne.u32 %%p, %%t, 0;\n\t@%%p bra $taken;\n"
		"\tand.b32 %%t, %%st, 0x%x;\n\tor.b32 %%t, %%t, %d;\n\tmov.b64 %%e, {%%t, %%h};\n"
		"\tatom.global.cas.b64 %%d, [%%slot], %%w, %%e;\n\tsetp.eq.u64 %%p, %%d, %%w;\n"
		"\t@%%p bra $claimed;\n$taken:\n"
		"\tadd.u32 %%far, %%far, 1;\n\tmin.u32 %%t, %%mask, %d;\n\tsetp.gt.u32 %%p, %%far, %%t;\n"
		"\t@%%p red.global.add.u64 [%%image+40], 0xffffffff00000000;\n\t@%%p bra $unlock;\n",
		MAP_SLOT_STATE, ~(uint32_t)(MAP_SLOT_STATE | MAP_SLOT_USED), MAP_SLOT_BUSY, MAP_SLOT_MAX_REACH);
	put_next(b);
	buf_puts(b, "\tbra $claim;\n$claimed:\n");
}

/* Writes the claimed slot and makes it live; gives the lock back. */
static void put_publish(struct buf *b, const struct hash *h)
{
	put_write(b, "key", "$write_key", "slot", h->key_words, h->key, 8);
	if (h->per_cpu)
		put_zero_replicas(b, h);
	put_value_at(b, h);
	put_write(b, "value", "$write_value", "value_at", h->value_words, h->value, 0);
	buf_printf(b,
		"\tsub.u32 %%t, %%far, %%reach;\n\tshl.b32 %%t, %%t, %d;\n\tsetp.gt.u32 %%p, %%far, %%reach;\n"
		"\t@%%p red.global.add.u32 [%%home], %%t;\n"
		"\tred.global.add.u64 [%%image+40], 0xffffffff00000001;\n" /* under way - 1, keys + 1 */
		"\tmembar.gl;\n" /* key, value, reach and count before the live state */
		"\tmov.u64 %%r, 0;\n\tsetp.ne.u32 %%p, %%far, 0;\n"
		"\t@!%%p red.global.add.u32 [%%slot], %d;\n\t@!%%p bra $unlocked;\n" /* live and unlocked in one */
		"\tred.global.add.u32 [%%slot], %d;\n"
		"\tmembar.gl;\n" /* the live state before the lock */
		"$unlock:\n"
		"\tred.global.and.b32 [%%home], 0x%x;\n"
		"$unlocked:\n"
		"\tsetp.ne.u32 %%locked, %%h, %%h;\n\tsetp.ne.u64 %%p, %%r, 1;\n\t@%%p bra $latch;\n",
		MAP_SLOT_REACH, MAP_SLOT_LIVE - MAP_SLOT_BUSY - MAP_SLOT_LOCK, MAP_SLOT_LIVE - MAP_SLOT_BUSY,
		~(uint32_t)MAP_SLOT_LOCK);
}

/* Makes room in an LRU map and goes to $reserve. */
static void put_evict(struct buf *b, const struct hash *h)
{
	buf_puts(b, "$no_room:\n");
	if (!h->lru) {
		buf_puts(b, "\tbra $unlock;\n");
		return;
	}
	buf_printf(b,
		"\tsub.u32 %%spins, %%spins, 1;\n\tsetp.le.s32 %%p, %%spins, 0;\n\t@%%p bra $unlock;\n"
		"\tmov.u32 %%n, %d;\n\tand.b32 %%i, %%h, %%mask;\n"
		"$evict:\n\tsetp.eq.u32 %%p, %%n, 0;\n\t@%%p bra $unlock;\n\tsub.u32 %%n, %%n, 1;\n",
		EVICT_LOOKS);
	put_next(b);
	put_slot(b, h);
	buf_printf(b,
		"\tand.b32 %%t, %%st, %d;\n\tsetp.ne.u32 %%p, %%t, %d;\n\t@%%p bra $evict;\n"
		"\tand.b32 %%t, %%st, %d;\n\tsetp.ne.u32 %%p, %%t, 0;\n"
		"\t@%%p red.global.and.b32 [%%slot], 0x%x;\n\t@%%p bra $evict;\n",
		MAP_SLOT_STATE, MAP_SLOT_LIVE, MAP_SLOT_USED, ~(uint32_t)MAP_SLOT_USED);
	put_take(b);
	buf_puts(b, "\t@%p bra $evict;\n");
	put_empty(b);
	buf_puts(b, "\tbra $reserve;\n");
}

/* %r is 1 until the answer is known. */
static void put_update(struct buf *b, struct hash *h)
{
	put_start(b, h, true);
	if (h->begins)
		buf_puts(b, "\tmov.u64 %there, 0;\n");
	buf_printf(b,
		"\tsetp.eq.u32 %%fast, %%h, %%h;\n\tsetp.ne.u32 %%full, %%h, %%h;\n\tsetp.ne.u32 %%locked, %%h, %%h;\n"
		"\tmov.u32 %%spins, %u;\n\tmov.u32 %%looks, %u;\n\tmov.u64 %%r, 1;\n"
		"\tsetp.gt.u64 %%p, %%flags, 2;\n\t@%%p mov.u64 %%r, -22;\n\t@%%p bra $done;\n",
		SPINS, FULL_LOOKS);
	put_scan(b, h);
	buf_printf(b, "\t@%%locked red.global.and.b32 [%%home], 0x%x;\n\tsetp.ne.u32 %%locked, %%h, %%h;\n",
		~(uint32_t)MAP_SLOT_LOCK);
	put_touch(b, h);
	if (!h->begins)
		buf_puts(b, "\tsetp.eq.u64 %p, %flags, 1;\n\t@%p mov.u64 %r, -17;\n\t@%p bra $latch;\n");
	put_value_at(b, h);
	if (!h->begins)
		put_write(b, "value", "$overwrite", "value_at", h->value_words, h->value, 0);
	else
		buf_puts(b, "\tmov.u64 %there, %value_at;\n");
	buf_puts(b, "\tmov.u64 %r, 0;\n\tbra $latch;\n"
		    "$absent:\n"
		    "\t@%locked bra $reserve;\n"
		    "\tsetp.eq.u64 %p, %flags, 2;\n\t@%p mov.u64 %r, -2;\n\t@%p bra $latch;\n"
		    "\t@%busy bra $retry;\n"); /* it may be our key: wait */
	put_lock(b, h);
	put_evict(b, h);
	put_reserve(b);
	put_claim(b, h);
	put_publish(b, h);
	buf_puts(b,
		"$retry:\n"
		"\tsetp.ne.u32 %full, %h, %h;\n"
		"#if ptx 6.3 sm 70\n\tnanosleep.u32 100;\n#endif\n" /* others are at it: leave them the memory */
		"$latch:\n"
		"\tsub.u32 %spins, %spins, 1;\n\tsetp.le.s32 %p, %spins, 0;\n\tsetp.eq.and.u64 %p, "
		"%r, 1, %p;\n"
		"\tnot.pred %q, %locked;\n\tand.pred %p, %p, %q;\n" /* who holds a lock goes on to give it back */
		"\t@%p mov.u64 %r, -16;\n"
		"\tsetp.eq.u64 %p, %r, 1;\n\t@%p bra $scan;\n"
		"\tsetp.eq.u64 %p, %r, -7;\n\tsetp.eq.u64 %q, %r, -16;\n\tor.pred %p, %p, %q;\n"
		"\t@%p red.global.add.u64 [%image+32], ");
	buf_printf(b, "%s;\n$done:\n", h->lost.s);
}

void tr_hash_update(struct tr *t, const struct ebpf_map *m, const struct tr_name *args, uint32_t n, struct tr_name result)
{
	emit(t, m, "update", put_update, true, args, n, result);
}

void tr_hash_begin(struct tr *t, const struct ebpf_map *m, const struct tr_name *args, uint32_t n, struct tr_name result)
{
	emit(t, m, "begin", put_update, true, args, n, result);
}
