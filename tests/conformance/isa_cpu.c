/* The interpreter as an executor of instruction sequences: checked, but with the alignment of a CPU. */
#include "cpu/interp.h"
#include "isa.h"

static int run(struct isa_case *c, const char **why)
{
	struct interp run = { .program = &c->program, .memory = c->mem, .max_insns = 10000000, .check = true, .any_alignment = true };
	struct interp_result r;
	int err = interp_run(&run, &r);
	*why = r.violation;
	c->r0 = r.r0;
	return err;
}

const struct isa_executor isa_cpu = { "cpu", run };
