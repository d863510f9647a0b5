/* One program at each point beyond memory: what it adds up is exact for a known launch. */
#include <egpu/probe.bpf.h>

__u64 blocks, block_insns, loop_heads, warp_blocks;
__u64 branches, taken, barriers, barrier_kinds;
__u64 wide_products, wide_operands, products;
__u64 loads, loaded_bytes, values;

SEC("gpu/block")
int at_block(struct egpu_block *ctx)
{
	blocks++;
	block_insns += ctx->insns;
	loop_heads += ctx->loop_head;
	return 0;
}

SEC("gpu.warp/block")
int at_warp_block(struct egpu_warp *ctx)
{
	warp_blocks++;
	return 0;
}

SEC("gpu/branch")
int at_branch(struct egpu_branch *ctx)
{
	branches++;
	taken += ctx->taken;
	return 0;
}

SEC("gpu/barrier")
int at_barrier(struct egpu_barrier *ctx)
{
	barriers++;
	barrier_kinds += ctx->kind;
	return 0;
}

SEC("gpu/insn:mul.wide")
int wide_product(struct egpu_insn *ctx)
{
	wide_products++;
	wide_operands += ctx->operands;
	return 0;
}

SEC("gpu/insn:mul")
int any_product(struct egpu_insn *ctx)
{
	products++;
	return 0;
}

SEC("gpu/load_done")
int load_done(struct egpu_load_done *ctx)
{
	loads++;
	loaded_bytes += ctx->value_bytes;
	values += (__u32)ctx->value[0] != 0;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
