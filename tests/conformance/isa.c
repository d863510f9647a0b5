/* isa [--on EXECUTOR] FILE - instruction sequences with known results, on one executor.
 *
 * Prints each difference and each case that is skipped, with the reason, and closes with "agree N, disagree M, skipped K". Status 1 on a difference.
 */
#include "cases.h"
#include "isa.h"

static const struct isa_executor *const executors[] = {
	&isa_cpu,
	&isa_softgpu,
	&isa_gpu,
};
static const struct isa_executor *on = &isa_cpu;
static unsigned agree, disagree, skipped, missing;

/* Programs that executors cannot be given are listed by name. What the machine lacks is no property of the program: it is said once. */
static void skip(const char *name, const char *why, bool refused)
{
	const char *known = refused ? case_known("isa", name) : NULL;
	if (refused)
		printf("%s: skipped: %s (%s)\n", name, why, known ? known : "not in known.txt");
	else if (!missing++)
		printf("skipped: %s\n", why);
	skipped++;
}

static bool same_memory(const json_t *o, const struct isa_case *c)
{
	const char *hex = json_string_value(json_object_get(o, "mem_out"));
	size_t n;
	if (!hex)
		return true;
	uint8_t *want = case_hex(hex, &n);
	bool same = n == c->program.memory_bytes && !memcmp(want, c->mem, n);
	if (!same)
		printf("%s: memory differs from what is recorded\n", c->name);
	free(want);
	return same;
}

static bool has_callx(const struct ebpf_program *p)
{
	for (uint32_t i = 0; i < p->n_insns; i++)
		if (p->insns[i].code == (BPF_JMP | BPF_CALL | BPF_X))
			return true;
	return false;
}

static void each(const json_t *o)
{
	size_t bytes, mem_bytes;
	uint8_t *insns = case_hex(case_text(o, "insns"), &bytes), *mem = case_hex(case_text(o, "mem"), &mem_bytes);
	struct isa_case c = { .name = case_text(o, "name"), .mem = mem,
		.program = { .name = "isa", .insns = (struct bpf_insn *)insns, .n_insns = (uint32_t)(bytes / 8), .memory_bytes = (uint32_t)mem_bytes } };
	const char *why = "";
	uint64_t want = strtoull(case_text(o, "expect_r0"), NULL, 0);
	bool narrow = json_integer_value(json_object_get(o, "r0_width")) == 32;
	int err = has_callx(&c.program) ? ISA_REFUSED : on->run(&c, &why);
	if (err > 0) {
		skip(c.name, *why ? why : "calls through a register do not exist", err == ISA_REFUSED);
	} else if (err < 0) {
		disagree++;
		printf("%s: %s\n", c.name, why);
	} else if (narrow ? (uint32_t)c.r0 != (uint32_t)want : c.r0 != want) {
		disagree++;
		printf("%s: r0 is 0x%llx, recorded 0x%llx\n", c.name, (unsigned long long)c.r0, (unsigned long long)want);
	} else if (!same_memory(o, &c)) {
		disagree++;
	} else {
		agree++;
	}
	free(insns);
	free(mem);
}

int main(int argc, char **argv)
{
	if (argc > 3 && !strcmp(argv[1], "--on")) {
		on = NULL;
		for (size_t k = 0; k < sizeof(executors) / sizeof(executors[0]); k++)
			if (!strcmp(executors[k]->name, argv[2]))
				on = executors[k];
		argv += 2;
		argc -= 2;
	}
	if (argc != 2 || !on || !case_each(argv[1], each)) {
		fprintf(stderr, "usage: isa [--on EXECUTOR] FILE\n");
		return 2;
	}
	printf("agree %u, disagree %u, skipped %u\n", agree, disagree, skipped);
	return disagree > 0;
}
