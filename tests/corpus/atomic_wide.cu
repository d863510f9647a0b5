/* 128-bit and vector atomics */
// sm: 90
extern "C" __global__ void kernel(ulonglong2 *a, float4 *b, float2 *c)
{
	asm volatile("{ .reg .b128 x, y; mov.b128 x, {%1, %1}; atom.global.exch.b128 y, [%0], x;\n\t"
		"atom.global.cas.b128 x, [%0], x, y; }" :: "l"(a), "l"(5ll) : "memory");
	atomicAdd(b, make_float4(1, 2, 3, 4)), atomicAdd(c, make_float2(1, 2));
}
