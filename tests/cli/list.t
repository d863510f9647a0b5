#!/bin/sh
# `egpu list` names every place that probes are kept out of, and why.
. "$(dirname "$0")/lib.sh"

cat >"$tmp/regions.ptx" <<'P'
.version 8.0
.target sm_90a
.address_size 64
.visible .func (.param .b32 r) first(.param .b32 p)
{
	.reg .b32 %r;
	ld.param.b32 %r, [p];
	st.param.b32 [r], %r;
	ret;
}
.visible .func (.param .b32 r) second(.param .b32 p);
.alias second, first;
.visible .entry products(.param .u64 p)
{
	.reg .b64 %rd<4>; .reg .f32 %f<5>;
	ld.param.u64 %rd1, [p];
	ld.global.f32 %f1, [%rd1];
	wgmma.fence.sync.aligned;
	wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd2, %rd3, 1, 1, 1, 0, 0;
	st.global.f32 [%rd1+4], %f1;
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 0;
	st.global.f32 [%rd1], %f1;
	ret;
}
.visible .entry waits(.param .u64 p)
{
	.reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p;
	.shared .align 8 .b64 bar;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, bar;
AGAIN:
	ld.global.u32 %r2, [%rd1];
	mbarrier.try_wait.parity.shared.b64 %p, [%r1], 0;
	@!%p bra AGAIN;
	st.global.u32 [%rd1], %r2;
	ret;
}
.visible .entry hidden(.param .u64 p)
{
	.reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .f32 %f<5>;
	.shared .align 128 .b8 tile[1024];
	.shared .align 8 .b64 bar;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, tile;
	mov.u32 %r2, bar;
	cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r3}], [%r2];
	tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r3}];
	wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%r1];
	ret;
}
.visible .entry pool()
{
	setmaxnreg.dec.sync.aligned.u32 40;
	ret;
}
.visible .entry measured_pool()
.maxntid 256, 1, 1
{
	setmaxnreg.dec.sync.aligned.u32 40;
	ret;
}
.visible .entry table(.param .u64 p)
{
	.reg .b32 %r<4>; .reg .b64 %rd<4>;
	ld.param.u64 %rd1, [p];
	ld.global.u32 %r1, [%rd1];
	and.b32 %r1, %r1, 1;
WAYS: .branchtargets ONE, TWO;
	brx.idx %r1, WAYS;
ONE:
	{
		.param .b32 a; .param .b32 b;
		st.param.b32 [a], %r1;
		call (b), second, (a);
		ld.param.b32 %r1, [b];
	}
TWO:
	st.global.u32 [%rd1], %r1;
	ret;
}
P
run "$egpu" list --arch=sm_90 --json="$tmp/json" "$tmp/regions.ptx"
is $status 0 "the list of a PTX file"
says "wgmma between its fence and its wait" '^  products: 2 of 6: between wgmma.fence and the end of its wait$'
says "a loop that waits for an mbarrier" '^  waits: 1 of 4: inside a loop that waits for an mbarrier$'
says "a tensor copy, a texture, a matrix" '^  hidden: 1 of 5: its addresses are in a tensor map$' \
	'^  hidden: 1 of 5: it goes by texture coordinates' '^  hidden: 1 of 5: which lane touches which part'
says "registers that nobody counted" '^  pool: it uses setmaxnreg, and no .maxntid'
says "a kernel that counts them, and one with a table of targets and an alias, can be probed" \
	'^yes +2 +.* measured_pool$' '^yes +4 +.* table$'
is "$(json "$tmp/json" 'join ";", map { my $k = $_; map { "$k->{name} $_->{sites} $_->{reason}" } @{$k->{left_alone}} } grep { $_->{name} eq "waits" } @{$j->{kernels}}')" \
	"waits 1 inside a loop that waits for an mbarrier" "the JSON has the same"

# A product whose sum comes behind an access that cannot be moved, and one that can.
cat >"$tmp/pairs.ptx" <<'P'
.version 7.8
.target sm_90
.address_size 64
.visible .entry parted(.param .u64 p)
{
	.reg .b64 %rd<2>; .reg .f32 %f<5>;
	ld.param.u64 %rd1, [p];
	ld.global.v2.f32 {%f1, %f2}, [%rd1];
	mul.f32 %f3, %f1, %f2;
	st.global.f32 [%rd1], %f1;
	add.f32 %f1, %f3, %f2;
	st.global.f32 [%rd1+4], %f1;
	ret;
}
.visible .entry whole(.param .u64 p)
{
	.reg .b64 %rd<2>; .reg .f32 %f<5>;
	ld.param.u64 %rd1, [p];
	ld.global.v2.f32 {%f1, %f2}, [%rd1];
	mul.f32 %f3, %f1, %f2;
	st.global.f32 [%rd1], %f1;
	add.f32 %f4, %f3, %f2;
	st.global.f32 [%rd1+4], %f4;
	ret;
}
P
run "$egpu" list --json="$tmp/json" "$tmp/pairs.ptx"
says "places that part a product from its sum are named" 'last bit of floating-point results may differ' '^  parted: 1 of 5 between a product and its sum$'
! grep -q '^  whole' "$tmp/out"
ok $? "a kernel whose probes can be moved is not"
is "$(json "$tmp/json" 'join " ", map { "$_->{name} $_->{last_bit_sites}" } @{$j->{kernels}}')" "parted 1 whole 0" "the JSON has the same"

# Every point goes into them; ptxas takes what comes out.
for k in products waits hidden measured_pool table; do
	run "$egpu" instrument -k $k -o "$tmp/$k.ptx" "$EGPU_SOURCE/tests/cli/probes/points.bpf.c" "$tmp/regions.ptx"
	is $status 0 "$k with every point"
	if command -v ptxas >/dev/null || PATH=$PATH:/usr/local/cuda/bin && command -v ptxas >/dev/null; then
		run ptxas -O0 -arch=sm_90a "$tmp/$k.ptx" -o /dev/null
		is $status 0 "ptxas takes $k"
	else
		skip "no ptxas" "ptxas takes $k"
	fi
done
finish
