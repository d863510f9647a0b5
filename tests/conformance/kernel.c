/* kernel [-v] [-s SEED] [-n COUNT] [-e EVERY] [FILE] - our verdicts beside those of the verifier of the running kernel, through bpf(2).
 *
 * Programs: the cases of FILE (verdicts.jsonl), with -e one of EVERY, and COUNT (1000) generated ones from SEED (1) on. Prints each disagreement with its class
 * (docs/verifier.md explains them) and closes with counts. Status 1 when a disagreement has no class, 77 when the
 * kernel cannot be asked.
 *
 * As root the kernel lets programs leak addresses and read stack that was not set; ours never may. What we refuse and root may do counts
 * as agreement when the kernel refuses it to a program with CAP_BPF alone.
 */
#include "cases.h"
#include "generate.h"
#include "kernel.h"
#include "verifier/verifier.h"

#include <unistd.h>

enum who {
	WE,    /* refuse, and the kernel accepts */
	PLAIN, /* the kernel refuses it to programs without privileges, we and root accept */
	RANGE, /* the kernel refuses; so do we with linux_ranges */
	ROOT,  /* the kernel refuses */
};

/* The first row that fits: the tag and a part of our reason, or a part of the kernel's. */
static struct class {
	const char *name; /* as in docs/verifier.md */
	enum who who;
	const char *tag, *text;
	unsigned count;
} classes[] = {
	{ "alignment", WE, "align", "", 0 },
	{ "may_goto", WE, "insn", "may_goto", 0 },
	{ "one-region", WE, "type", "same insn cannot be used with different pointers", 0 },
	{ "released", WE, "uninit", "invalid read from stack", 0 }, /* where stack was never set, the kernel refuses plain programs too */
	{ "endless-loop", WE, "loop", "infinite loop detected", 0 }, /* around bpf_loop the kernel does not look for them */
	{ "speculation", PLAIN, NULL, "prohibited for !root", 0 },
	{ "speculation", PLAIN, NULL, "infinite loop detected", 0 }, /* along a branch that is not taken, the counter stays */
	{ "overwritten", PLAIN, NULL, "attempt to corrupt spilled pointer", 0 }, /* root may, and neither of us lets the rest be read */
	{ "null-test", PLAIN, NULL, "pointer comparison prohibited", 0 },
	{ "ranges", RANGE, NULL, "", 0 },
	{ "capacity", PLAIN, NULL, "jumps is too complex", 0 },
	{ "capacity", PLAIN, NULL, "BPF program is too large", 0 },
	{ "capacity", ROOT, NULL, "jumps is too complex", 0 },
	{ "capacity", ROOT, NULL, "BPF program is too large", 0 },
	{ "kernel-bug", ROOT, NULL, "verifier bug: No program to jit", 0 },
	{ NULL, WE, NULL, NULL, 0 },
};

static unsigned agreed, accepted, plain, disagreed, unexplained, skipped;
static unsigned long every = 1, cases;
static bool verbose;

struct verdicts {
	const char *id;
	int ours, root;
	bool plain;  /* root may */
	bool ranges; /* ours is another one with linux_ranges */
	const char *tag, *why;
	char kernel[300];
};

static struct class *class_of(const struct verdicts *v)
{
	enum who who = v->ours ? WE : v->plain ? PLAIN : v->ranges ? RANGE : ROOT;
	for (struct class *c = classes; c->name; c++)
		if (c->who == who && (!c->tag || !strcmp(c->tag, v->tag)) && strstr(v->ours ? v->why : v->kernel, c->text))
			return c;
	return NULL;
}

static void disagree(const struct verdicts *v)
{
	struct class *c = class_of(v);
	disagreed++;
	unexplained += !c;
	for (struct class *first = classes; c && first->name; first++) /* rows of one name count together */
		if (!strcmp(first->name, c->name)) {
			first->count++;
			break;
		}
	const char *name = c ? c->name : "unexplained";
	if (v->ours)
		printf("%s: [%s] refused by us only: %s [%s]\n", v->id, name, v->why, v->tag);
	else
		printf("%s: [%s] refused by the kernel only%s (%d): %s\n", v->id, name, v->plain ? " (to a program without privileges)" : "", v->root, v->kernel);
}

static void judge(const struct kernel_program *k, const char *id)
{
	struct arena *arena = arena_new();
	struct verifier_options opts = { .max_run_insns = 1ull << 60 }; /* Linux does not limit the length of a run */
	struct verifier_result result;
	struct diag d = { 0 };
	struct verdicts v = { .id = id };
	v.ours = verifier_check(arena, k->program, &opts, &result, NULL, &d);
	v.tag = result.tag;
	v.why = d.text;
	v.root = kernel_verdict(k, KERNEL_ROOT, v.kernel, sizeof(v.kernel));
	bool plain_type = k->type == BPF_PROG_TYPE_SOCKET_FILTER;
	if (v.root > 0) {
		skipped++;
		if (verbose)
			printf("%s: skipped: %s\n", id, v.kernel);
	} else if (!v.ours && !v.root && plain_type && (v.root = kernel_verdict(k, KERNEL_PLAIN, v.kernel, sizeof(v.kernel)))) {
		v.plain = true;
		disagree(&v);
	} else if (!v.ours == !v.root) {
		agreed++;
		accepted += !v.ours;
		if (verbose && v.ours)
			printf("%s: both: %s [%s] | %s\n", id, v.why, v.tag, v.kernel);
	} else if (v.ours) {
		struct kernel_program same = { k->program, BPF_PROG_TYPE_SOCKET_FILTER, k->flags };
		if (kernel_verdict(&same, KERNEL_PLAIN, v.kernel, sizeof(v.kernel)) < 0)
			plain++;
		else
			disagree(&v);
	} else {
		opts.linux_ranges = true;
		v.ranges = verifier_check(arena, k->program, &opts, &result, NULL, &d) != 0;
		disagree(&v);
	}
	arena_free(arena);
}

static void each(const json_t *o)
{
	static const struct {
		const char *name;
		uint32_t type;
	} types[] = { { "socket_filter", BPF_PROG_TYPE_SOCKET_FILTER }, { "xdp", BPF_PROG_TYPE_XDP }, { "tracepoint", BPF_PROG_TYPE_TRACEPOINT },
		{ "sched_cls", BPF_PROG_TYPE_SCHED_CLS }, { "raw_tracepoint", BPF_PROG_TYPE_RAW_TRACEPOINT }, { "kprobe", BPF_PROG_TYPE_KPROBE } };
	struct case_maps maps;
	struct ebpf_program p;
	struct kernel_program k = { &p, BPF_PROG_TYPE_UNSPEC, (uint32_t)json_integer_value(json_object_get(o, "load_flags")) };
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(types[i].name, case_text(o, "prog_type")))
			k.type = types[i].type;
	bool fine = case_program(o, &maps, &p) && k.type;
	if (cases++ % every == 0) {
		if (fine)
			judge(&k, case_text(o, "id"));
		else
			skipped++;
	}
	kernel_release();
	free(p.insns);
}

static void judge_generated(uint64_t seed)
{
	static struct generated g;
	char id[48];
	generate(seed, &g);
	snprintf(id, sizeof(id), "generated %llu", (unsigned long long)seed);
	/* The buffer of a test run may be read at any address; the rest has our alignment when the kernel is asked for it. */
	struct kernel_program k = { &g.program, BPF_PROG_TYPE_SOCKET_FILTER, g.program.context == EBPF_CONTEXT_NONE ? 0 : BPF_F_STRICT_ALIGNMENT };
	judge(&k, id);
}

static int usage(void)
{
	fprintf(stderr, "usage: kernel [-v] [-s SEED] [-n COUNT] [-e EVERY] [FILE]\n");
	return 2;
}

int main(int argc, char **argv)
{
	uint64_t seed = 1, count = 1000;
	for (int opt; (opt = getopt(argc, argv, "vs:n:e:")) != -1;) {
		if (opt == 'v')
			verbose = true;
		else if (opt == 's')
			seed = strtoull(optarg, NULL, 0);
		else if (opt == 'n')
			count = strtoull(optarg, NULL, 0);
		else if (opt == 'e' && strtoul(optarg, NULL, 0))
			every = strtoul(optarg, NULL, 0);
		else
			return usage();
	}
	const char *missing = kernel_missing();
	if (missing) {
		printf("%s\n", missing);
		return 77;
	}
	if (argc > optind && !case_each(argv[optind], each))
		return usage();
	for (uint64_t k = 0; k < count; k++)
		judge_generated(seed + k);
	for (struct class *c = classes; c->name; c++)
		if (c->count)
			printf("class %s: %u\n", c->name, c->count);
	printf("agree %u (%u accepted), refused to unprivileged programs %u, disagree %u, unexplained %u, skipped %u\n", agreed, accepted, plain, disagreed,
		unexplained, skipped);
	return unexplained > 0;
}
