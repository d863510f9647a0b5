/* Makes a session, and matches nothing. */
#include <egpu/probe.bpf.h>
__u64 x;
SEC("gpu/entry/none_of_them") int none(struct egpu_entry *ctx) { x++; return 0; }
