/* verdicts FILE - what our verifier says of programs whose verdict is known.
 *
 * Prints each difference and closes with "false accept N, false reject M, agree K, skipped S". Accepted programs also run in the checked
 * interpreter: a violation, or a result other than the recorded one, counts as a false accept. Status 1 on a false accept or a
 * refusal for another reason than the recorded one. Each false reject has its reason in known.txt.
 */
#include "cases.h"
#include "bpf/helpers.h"
#include "cpu/interp.h"
#include "verifier/verifier.h"

#include <errno.h>

static unsigned false_accept, false_reject, agree, skipped, wrong_reason;
static bool verbose;

struct maps {
	struct case_maps def;
	uint8_t *values[EBPF_MAX_MAPS]; /* arrays: all entries; hashes: one entry */
	uint8_t keys[EBPF_MAX_MAPS][64];
	bool live[EBPF_MAX_MAPS];
	uint8_t record[4096] __attribute__((aligned(8)));
};

static bool is_array(const struct ebpf_map *m)
{
	return m->type == BPF_MAP_TYPE_ARRAY || m->type == BPF_MAP_TYPE_PERCPU_ARRAY;
}

static void *map_lookup(void *self, uint32_t map, const void *key)
{
	struct maps *m = self;
	const struct ebpf_map *def = &m->def.map[map];
	uint32_t index;
	if (is_array(def)) {
		memcpy(&index, key, 4);
		return index < def->max_entries ? m->values[map] + (size_t)index * ((def->value_size + 7) & ~7u) : NULL;
	}
	return m->live[map] && !memcmp(key, m->keys[map], def->key_size) ? m->values[map] : NULL;
}

static int64_t map_update(void *self, uint32_t map, const void *key, const void *value, uint64_t flags)
{
	struct maps *m = self;
	const struct ebpf_map *def = &m->def.map[map];
	if (flags > BPF_EXIST)
		return -EINVAL;
	if (!is_array(def)) {
		memcpy(m->keys[map], key, def->key_size);
		m->live[map] = true;
	}
	void *to = map_lookup(self, map, key);
	if (!to)
		return -E2BIG;
	memcpy(to, value, def->value_size);
	return 0;
}

static int64_t map_delete(void *self, uint32_t map, const void *key)
{
	struct maps *m = self;
	if (is_array(&m->def.map[map]))
		return -EINVAL;
	if (!map_lookup(self, map, key))
		return -ENOENT;
	m->live[map] = false;
	return 0;
}

static void *map_value(void *self, uint32_t map)
{
	return ((struct maps *)self)->values[map];
}

static void *ring_reserve(void *self, uint32_t map, uint64_t bytes)
{
	struct maps *m = self;
	return bytes <= sizeof(m->record) ? m->record : NULL;
}

static void ring_commit(void *self, void *record, bool discard, uint64_t flags)
{
}

static int64_t ring_output(void *self, uint32_t map, const void *data, uint64_t bytes, uint64_t flags)
{
	return 0;
}

static uint32_t draw(void *self)
{
	static uint32_t seed = 1;
	return seed = seed * 1664525 + 1013904223;
}

static const struct interp_ops ops = { map_lookup, map_update, map_delete, map_value, ring_reserve, ring_commit, ring_output, NULL,
	NULL, draw, NULL, NULL, NULL, NULL, NULL };

static void reset_map(struct maps *m, uint32_t k)
{
	const struct ebpf_map *def = &m->def.map[k];
	size_t bytes;
	uint8_t *first = case_hex(m->def.initial[k], &bytes);
	memset(m->values[k], 0, (size_t)(is_array(def) ? def->max_entries : 1) * ((def->value_size + 7) & ~7u));
	memcpy(m->values[k], first, bytes < def->value_size ? bytes : def->value_size);
	m->live[k] = false;
	free(first);
}

/* One accepted program against its recorded results. */
static bool run_agrees(const json_t *o, struct ebpf_program *p, struct maps *m, const struct verifier_result *v)
{
	const json_t *runs = json_object_get(o, "runs"), *want;
	size_t k;
	bool fine = true;
	uint64_t context[128] = { 0 };
	struct interp run = { .program = p, .memory = context, .ops = &ops, .self = m, .max_insns = v->max_run_insns, .check = true };
	struct interp_result r;
	json_array_foreach(runs, k, want) {
		for (uint32_t i = 0; i < m->def.n; i++)
			reset_map(m, i);
		int err = interp_run(&run, &r);
		if (err) {
			printf("%s (%s): accepted, but at %u: %s\n", case_text(o, "id"), case_text(o, "name"), r.at, r.violation);
			return false;
		}
		if (json_is_true(json_object_get(want, "deterministic")) && (uint32_t)r.r0 != (uint32_t)json_integer_value(json_object_get(want, "r0_low32"))) {
			printf("%s (%s): r0 is 0x%x, recorded 0x%x\n", case_text(o, "id"), case_text(o, "name"), (uint32_t)r.r0,
				(uint32_t)json_integer_value(json_object_get(want, "r0_low32")));
			fine = false;
		}
	}
	return fine;
}

/* Programs for helpers that no GPU has (and their callbacks) say nothing about this verifier. */
static bool out_of_scope(const json_t *o)
{
	const json_t *h;
	size_t k;
	json_array_foreach(json_object_get(o, "helpers"), k, h)
		if (!ebpf_helper_by_number((uint32_t)json_integer_value(h)))
			return true;
	return false;
}

/* Which of our tags are the right reason for a recorded one. A tag of the data names a family of tests, in which programs
 * fail in more than one way ("atomic" holds uninitialised operands and bounds); ours names the rule that was broken. */
static const struct {
	const char *recorded, *ours;
} reasons[] = {
	{ "atomic", "uninit oob map ref" },
	{ "atomic-bad-target", "ctx" },
	{ "bad-deref", "type leak ctx uninit" }, /* leak: the pointer was taken apart before the recorded access */
	{ "bad-encoding", "insn" },
	{ "bad-ldimm64", "insn map" },
	{ "bad-opcode", "insn" },
	{ "bad-shift", "insn" },
	{ "bounds-oob", "oob" },
	{ "call", "insn helper" },
	{ "call-recursion", "stack loop" },
	{ "callback", "type leak uninit helper insn loop oob ref" },
	{ "cfg", "insn" },
	{ "div-zero", "insn" },
	{ "frame-pointer", "insn leak" }, /* leak: r10 handed to an atomic */
	{ "helper-arg", "type oob null" },
	{ "limit", "stack length" },
	{ "loop", "loop" },
	{ "loop-limit", "loop length" },
	{ "loop-oob", "oob" },
	{ "loop-unbounded", "loop length" },
	{ "map-oob", "oob" },
	{ "map-oob-or-bounds", "oob map" },
	{ "map-perm", "map" },
	{ "map-ptr", "type leak" },
	{ "map-ro", "map" },
	{ "map-type", "map" },
	{ "misaligned", "align oob" }, /* oob: the access straddles the end as well */
	{ "null-check", "null type" },
	{ "null-deref", "null" },
	{ "precision-gap", "null oob" },
	{ "pruning", "oob type" },
	{ "ptr-arith", "type leak oob" },
	{ "ptr-leak", "leak" },
	{ "reference", "ref null size type uninit" },
	{ "reference-leak", "ref" },
	{ "reserved-field", "insn" },
	{ "stack-corrupt", "leak" },
	{ "stack-escape", "leak" },
	{ "stack-oob", "oob align" }, /* align: checked first */
	{ "stack-uninit", "uninit" },
	{ "stack-uninit-or-corrupt", "uninit leak oob" },
	{ "unbounded-loop", "loop length insn uninit" }, /* insn: may_goto; uninit: an uninitialised stack read before it */
	{ "uninit-reg", "uninit insn leak" }, /* insn: reserved fields are looked at first */
	{ "uninit-stack-read", "uninit" },
};

static bool right_reason(const char *recorded, const char *tag)
{
	size_t n = strlen(tag);
	for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++) {
		if (strcmp(reasons[i].recorded, recorded))
			continue;
		for (const char *at = reasons[i].ours; (at = strstr(at, tag)); at += n)
			if ((at == reasons[i].ours || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
				return true;
		return false;
	}
	return false;
}

static void judge(const json_t *o, struct ebpf_program *p, struct maps *m)
{
	struct arena *arena = arena_new();
	struct verifier_options opts = { .max_run_insns = 10000000, .log_level = verbose };
	struct verifier_result v;
	struct diag d = { 0 };
	struct buf log = { 0 };
	int err = verifier_check(arena, p, &opts, &v, verbose ? &log : NULL, &d);
	const char *expect = case_text(o, "expect");
	if (err && !strcmp(expect, "accept")) {
		const char *known = case_known("verdict", case_text(o, "id"));
		false_reject++;
		printf("%s (%s): false reject [%s] at %u: %s | %s\n", case_text(o, "id"), case_text(o, "name"), v.tag, v.failed_insn, d.text,
			known ? known : "not in known.txt");
	} else if (!err && !strcmp(expect, "reject")) {
		false_accept++;
		printf("%s (%s): false accept [%s]: %s\n", case_text(o, "id"), case_text(o, "name"), case_text(o, "tag"), case_text(o, "kernel_log"));
	} else if (!err && !run_agrees(o, p, m, &v)) {
		false_accept++;
	} else if (err && !strcmp(expect, "reject") && !right_reason(case_text(o, "tag"), v.tag)) {
		wrong_reason++;
		printf("%s (%s): refused for the wrong reason [%s], want %s: %s | %s\n", case_text(o, "id"), case_text(o, "name"), v.tag,
			case_text(o, "tag"), d.text, case_text(o, "kernel_log"));
	} else {
		agree++;
		if (verbose && err)
			printf("%s (%s): [%s | %s] %s | %s\n", case_text(o, "id"), case_text(o, "name"), v.tag, case_text(o, "tag"), d.text, case_text(o, "kernel_log"));
		log.len = 0;
	}
	if (log.len)
		fputs(log.data, stdout);
	buf_free(&log);
	arena_free(arena);
}

static void each(const json_t *o)
{
	static struct maps m;
	struct ebpf_program p;
	memset(&m, 0, sizeof(m));
	bool skip = !case_program(o, &m.def, &p) || out_of_scope(o);
	for (uint32_t i = 0; i < m.def.n; i++)
		m.values[i] = calloc(is_array(&m.def.map[i]) ? m.def.map[i].max_entries : 1, (m.def.map[i].value_size + 7) & ~7u);
	if (skip)
		skipped++;
	else
		judge(o, &p, &m);
	for (uint32_t i = 0; i < m.def.n; i++)
		free(m.values[i]);
	free(p.insns);
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "-v")) {
		verbose = true;
		argv++;
	}
	if (argc < 2 || !case_each(argv[1], each)) {
		fprintf(stderr, "usage: verdicts [-v] FILE\n");
		return 2;
	}
	if (wrong_reason)
		printf("refused for the wrong reason: %u\n", wrong_reason);
	printf("false accept %u, false reject %u, agree %u, skipped %u\n", false_accept, false_reject, agree, skipped);
	return false_accept > 0 || wrong_reason > 0;
}
