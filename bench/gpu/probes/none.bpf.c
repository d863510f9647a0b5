/* SPDX-License-Identifier: Apache-2.0 */
/* none.bpf.c - a program that does nothing: the kernel is recompiled and launched in another's place, and no more. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

SEC("gpu/entry")
int none(struct egpu_entry *ctx)
{
	return 0;
}
