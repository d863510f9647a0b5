/* What a program may give to push, pop and peek: the kernel's rules. */
#include "verifier_case.h"

/* fp-16 .. fp-1 is a value of 16 bytes. */
#define FILL() STI(BPF_DW, 10, -16, 1), STI(BPF_DW, 10, -8, 2)
#define VALUE() MOV(2, 10), ALUI(BPF_ADD, 2, -16)
#define PUSH(map, flags) VALUE(), MOVI(3, flags), MAP(1, map), CALL(map_push_elem)
#define POP(map) VALUE(), MAP(1, map), CALL(map_pop_elem)
#define PEEK(map) VALUE(), MAP(1, map), CALL(map_peek_elem)
#define accept(name, ...) accepted(name, __VA_ARGS__)
#define reject(tag_, name, ...)                                                                    \
	do {                                                                                       \
		const struct bpf_insn insns_[] = { __VA_ARGS__ };                                  \
		int err_ = case_check(EBPF_CONTEXT_MEM, 0, insns_, sizeof(insns_) / sizeof(insns_[0])); \
		if (!ok(err_ && !strcmp(case_result.tag, tag_), "refused: %s", name))              \
			printf("#   %s: %s\n", err_ ? case_result.tag : "accepted", case_reason);  \
	} while (0)
#define END() MOVI(0, 0), EXIT()

int main(void)
{
	case_arena = arena_new();
	accept("push", FILL(), PUSH(QUEUE, 0), END());
	accept("push, with a flag", FILL(), PUSH(STACK, BPF_EXIST), END());
	accept("push to a Bloom filter", FILL(), PUSH(BLOOM, 0), END());
	accept("peek in a Bloom filter, of a value that is there", FILL(), PEEK(BLOOM), END());
	accept("pop needs no value, and leaves one", POP(QUEUE), LD(BPF_DW, 0, 10, -16), LD(BPF_DW, 0, 10, -8), END());
	accept("peek too", PEEK(STACK), LD(BPF_W, 0, 10, -4), END());
	accept("pop over what was there", FILL(), POP(STACK), LD(BPF_DW, 0, 10, -8), END());
	accept("pop into a map's value", LOOKUP(ARR), JMPI(BPF_JEQ, 0, 0, 5), MOV(2, 0), ALUI(BPF_ADD, 2, 32), MAP(1, QUEUE), CALL(map_pop_elem), END());
	accept("a value at any address", STI(BPF_DW, 10, -24, 1), STI(BPF_DW, 10, -16, 1), STI(BPF_DW, 10, -8, 2), MOV(2, 10), ALUI(BPF_ADD, 2, -19),
		MOVI(3, 0), MAP(1, QUEUE), CALL(map_push_elem), MOV(2, 10), ALUI(BPF_ADD, 2, -21), MAP(1, QUEUE), CALL(map_pop_elem),
		LD(BPF_B, 0, 10, -6), END());
	reject("uninit", "push of a value that was not set", STI(BPF_DW, 10, -16, 1), PUSH(QUEUE, 0), END());
	reject("uninit", "peek in a Bloom filter, of nothing", STI(BPF_DW, 10, -16, 1), PEEK(BLOOM), END());
	reject("uninit", "beside what pop has set", POP(QUEUE), LD(BPF_DW, 0, 10, -24), END());
	reject("oob", "pop beyond a map's value", LOOKUP(ARR), JMPI(BPF_JEQ, 0, 0, 5), MOV(2, 0), ALUI(BPF_ADD, 2, 40), MAP(1, QUEUE), CALL(map_pop_elem), END());
	reject("null", "pop into what may be null", LOOKUP(HASH), MOV(2, 0), MAP(1, QUEUE), CALL(map_pop_elem), END());
	reject("map", "pop from a Bloom filter", FILL(), POP(BLOOM), END());
	reject("map", "push to an array", FILL(), PUSH(ARR, 0), END());
	reject("map", "push to a ring", FILL(), PUSH(RING, 0), END());
	reject("map", "look-up in a queue", LOOKUP(QUEUE), END());
	reject("map", "look-up in a Bloom filter", LOOKUP(BLOOM), END());
	reject("map", "update of a stack", STI(BPF_DW, 10, -8, 0), FILL(), MOV(2, 10), ALUI(BPF_ADD, 2, -8), VALUE(), MOV(3, 2), MOVI(4, 0), MAP(1, STACK),
		CALL(map_update_elem), END());
	reject("leak", "an address as flags", FILL(), VALUE(), MOV(3, 10), MAP(1, QUEUE), CALL(map_push_elem), END());
	reject("map", "pop into a map that programs do not write", GLOBAL(2, RO, 0), MAP(1, QUEUE), CALL(map_pop_elem), END());
	reject("type", "a number as the place", MOVI(2, 64), MAP(1, QUEUE), CALL(map_pop_elem), END());
	accept("the id of a stack", MAP(2, STACKS), MOVI(3, BPF_F_REUSE_STACKID), CALL(get_stackid), END());
	ok(case_result.fields >> EBPF_FIELD_SITE & 1, "which reads the site");
	reject("type", "of what is no context", MOV(1, 10), MAP(2, STACKS), MOVI(3, 0), CALL(get_stackid), END());
	reject("ctx", "of a part of the context", ALUI(BPF_ADD, 1, 8), MAP(2, STACKS), MOVI(3, 0), CALL(get_stackid), END());
	reject("map", "into an array", MAP(2, ARR), MOVI(3, 0), CALL(get_stackid), END());
	reject("map", "a look-up of stacks", LOOKUP(STACKS), END());
	reject("map", "a push to stacks", FILL(), PUSH(STACKS, 0), END());
	reject("helper", "the stack itself", MOV(2, 10), MOVI(3, 8), MOVI(4, 0), CALL(get_stack), END());
	arena_free(case_arena);
	return tap_done();
}
