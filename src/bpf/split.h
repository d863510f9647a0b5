/* split.h - a way of its own through instructions that several ways lead to.
 *
 * Compilers join ways that end alike: `if (v) update(&m, &k, v); else update(&m, &k, &one);` becomes one call, which is given a map's value
 * on one way and the stack on the other. Here an instruction works on one kind of memory. A copy for one of the ways parts them again,
 * and changes nothing of what the program does.
 */
#ifndef EGPU_BPF_SPLIT_H
#define EGPU_BPF_SPLIT_H

#include "base/arena.h"
#include "bpf/program.h"

/* Gives the first jump that leads to the straight piece of code which ends with instruction `insn`, no jump, a copy of that piece, behind the
 * program's end. Instructions and lines of *p are replaced by longer ones, in the arena. *done is false where no other way leads there, or
 * the program has functions (whose code follows). 0, -ENOMEM. */
int ebpf_split(struct arena *arena, struct ebpf_program *p, uint32_t insn, bool *done);

#endif
