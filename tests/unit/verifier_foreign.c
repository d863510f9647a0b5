/* What programs written for bpftime may do with arrays per thread, and with bpf_perf_event_output. */
#include "verifier_case.h"

#define reject(tag_, name, ...)                                                                    \
	do {                                                                                       \
		const struct bpf_insn insns_[] = { __VA_ARGS__ };                                  \
		int err_ = case_check(context, 0, insns_, sizeof(insns_) / sizeof(insns_[0]));     \
		if (!ok(err_ && !strcmp(case_result.tag, tag_), "refused: %s", name))              \
			printf("#   %s: %s\n", err_ ? case_result.tag : "accepted", case_reason);  \
	} while (0)
#define accept(name, ...) accepted(name, __VA_ARGS__)
#define END() MOVI(0, 0), EXIT()
#define SEND(bytes) STI(BPF_DW, 10, -16, 1), STI(BPF_DW, 10, -8, 2), MAP(2, RING), MOVI(3, 0), MOV(4, 10), ALUI(BPF_ADD, 4, -16), MOVI(5, bytes), \
	CALL(perf_event_output)

int main(void)
{
	enum ebpf_context context = EBPF_CONTEXT_MEM;
	case_arena = arena_new();
	accept("a record, with the context", SEND(16), END());
	accept("without one", MOVI(1, 0), SEND(12), END());
	reject("type", "with a number in its place", MOVI(1, 8), SEND(16), END());
	reject("type", "with an address", MOV(1, 10), SEND(16), END());
	reject("type", "with a part of the context", ALUI(BPF_ADD, 1, 8), SEND(16), END());
	reject("uninit", "of more than was set", MOVI(1, 0), MAP(2, RING), MOVI(3, 0), MOV(4, 10), ALUI(BPF_ADD, 4, -16), MOVI(5, 16), CALL(perf_event_output), END());
	reject("oob", "of more than there is", SEND(24), END());
	reject("map", "into an array", STI(BPF_DW, 10, -8, 2), MAP(2, ARR), MOVI(3, 0), MOV(4, 10), ALUI(BPF_ADD, 4, -8), MOVI(5, 8), CALL(perf_event_output),
		END());
	accept("whose process this is", CALL(get_current_pid_tgid), ALUI(BPF_RSH, 0, 32), EXIT());
	accept("an element of this thread", LOOKUP(THREADS), JMPI(BPF_JEQ, 0, 0, 1), STI(BPF_DW, 0, 40, 1), END());
	reject("null", "which there may not be for a key that there is", STI(BPF_W, 10, -4, 1), MOV(2, 10), ALUI(BPF_ADD, 2, -4), MAP(1, THREADS),
		CALL(map_lookup_elem), STI(BPF_DW, 0, 0, 1), END());
	reject("oob", "its neighbour", LOOKUP(THREADS), JMPI(BPF_JEQ, 0, 0, 1), STI(BPF_DW, 0, 48, 1), END());
	reject("map", "its address", GLOBAL(2, THREADS, 0), END());
	context = EBPF_CONTEXT_WARP;
	reject("map", "an element of a thread in a program of warps", LOOKUP(THREADS), END());
	arena_free(case_arena);
	return tap_done();
}
