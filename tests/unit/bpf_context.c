/* Contexts and sections: which bytes are fields, and which section names a probe. */
#include "bpf/context.h"
#include "bpf/helpers.h"
#include "tap.h"

static void test_fields(void)
{
	uint32_t shift = 9;
	is_int(ebpf_field_at(EBPF_CONTEXT_MEM, 128, 8, &shift), EBPF_FIELD_ADDRESS, "a whole field");
	is_int(shift, 0, "starts at its own start");
	is_int(ebpf_field_at(EBPF_CONTEXT_MEM, 132, 4, &shift), EBPF_FIELD_ADDRESS, "half a field");
	is_int(shift, 4, "is 4 bytes in");
	is_int(ebpf_field_at(EBPF_CONTEXT_MEM, 116, 4, &shift), -1, "padding is no field");
	is_int(ebpf_field_at(EBPF_CONTEXT_MEM, 0, 8, &shift), -1, "two fields are not one");
	is_int(ebpf_field_at(EBPF_CONTEXT_WARP, 128, 4, &shift), EBPF_FIELD_MASK, "128 in a warp context");
	is_int(ebpf_field_at(EBPF_CONTEXT_WARP, 136, 4, &shift), -1, "past the end");
	is_int(ebpf_field_at(EBPF_CONTEXT_MEM, 0xfffffffc, 8, &shift), -1, "an offset near 2^32");
	is_int(ebpf_field_at(EBPF_CONTEXT_MEM, 128, 0, &shift), -1, "no bytes");
	is_int(ebpf_field_at(EBPF_CONTEXT_ENTRY, 128, 8, &shift), -1, "parameters are not fields");
	is_int(ebpf_context_bytes(EBPF_CONTEXT_ENTRY), 640, "size of egpu_entry");
	is_int(ebpf_context_bytes(EBPF_CONTEXT_NONE), 0, "size of no context");
}

static void test_section(const char *section, int err, enum ebpf_point point, bool warp, const char *pattern)
{
	enum ebpf_point p = EBPF_POINT_NONE;
	bool w = false;
	const char *pat = NULL;
	int got = ebpf_section_parse(section, &p, &w, &pat);
	ok(got == err && (err || (p == point && w == warp && (pattern ? pat && !strcmp(pat, pattern) : !pat))),
		"section \"%s\"", section);
}

int main(void)
{
	test_fields();
	test_section("gpu/load/my_kernel*", 0, EBPF_POINT_LOAD, false, "my_kernel*");
	test_section("gpu/entry", 0, EBPF_POINT_ENTRY, false, NULL);
	test_section("gpu/entry/", 0, EBPF_POINT_ENTRY, false, NULL);
	test_section("gpu.warp/mem//^k[0-9]+$/", 0, EBPF_POINT_MEM, true, "/^k[0-9]+$/");
	test_section("raw_tp/gpu/store/a/b", 0, EBPF_POINT_STORE, false, "a/b");
	test_section("raw_tracepoint/gpu.warp/exit/*", 0, EBPF_POINT_EXIT, true, "*");
	test_section("gpu/access/x", 0, EBPF_POINT_ACCESS, false, "x");
	test_section("kprobe/k", 0, EBPF_POINT_ENTRY, false, "k");
	test_section("kretprobe/_Z1kPf", 0, EBPF_POINT_EXIT, false, "_Z1kPf");
	test_section("kprobe/cuda__Z1kPf", 0, EBPF_POINT_ENTRY, false, "_Z1kPf");
	test_section("kprobe/cuda__k", 0, EBPF_POINT_ENTRY, false, "k");
	test_section("kretprobe/cuda___Z1kPf", 0, EBPF_POINT_EXIT, false, "_Z1kPf");
	test_section("kretprobe/cuda_k", 0, EBPF_POINT_EXIT, false, "k");
	test_section("kprobe/", 0, EBPF_POINT_ENTRY, false, NULL);
	test_section("kprobe/__memcapture", 0, EBPF_POINT_ACCESS, false, NULL);
	test_section("kretprobe/__memcapture", 0, EBPF_POINT_EXIT, false, "__memcapture");
	test_section("kprobe/__directly_run", -22, 0, false, NULL);
	test_section("kprobe.multi/k*", -22, 0, false, NULL);
	test_section("uprobe/k", -22, 0, false, NULL);
	ok(ebpf_section_refused("kprobe/__directly_run") && ebpf_section_refused("uretprobe//bin/sh:f") && ebpf_section_refused("tp/sched/x"),
		"what is no GPU's has a reason");
	ok(!ebpf_section_refused("kprobe/k") && !ebpf_section_refused("gpu/none/x") && !ebpf_section_refused("xdp"), "what is or may be has none");
	test_section("gpu/none/x", -22, 0, false, NULL);
	test_section("gpu/loads/x", -22, 0, false, NULL);
	test_section("gpu//x", -22, 0, false, NULL);
	test_section("gpux/load", -22, 0, false, NULL);
	test_section("gpu", -22, 0, false, NULL);
	test_section("raw_tp/sys_enter", -22, 0, false, NULL);
	test_section("raw_tp/raw_tp/gpu/load", -22, 0, false, NULL);
	is_int(ebpf_point_context(EBPF_POINT_EXIT, true), EBPF_CONTEXT_WARP, "exit once a warp");
	is_int(ebpf_point_context(EBPF_POINT_ATOMIC, false), EBPF_CONTEXT_MEM, "atomic per thread");
	is_int(ebpf_context_by_struct("egpu_warp_mem"), EBPF_CONTEXT_WARP_MEM, "a context by its struct");
	is_int(ebpf_context_by_struct("sk_buff"), EBPF_CONTEXT_NONE, "another struct is none");
	is_str(ebpf_helper_by_number(131)->name, "ringbuf_reserve", "helper 131");
	ok(!ebpf_helper_by_number(4) && !ebpf_helper_by_number(0xffffffff), "no other helpers");
	return tap_done();
}
