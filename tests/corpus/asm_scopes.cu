/* inline assembly with nested scopes, labels and comments */
extern "C" __global__ void kernel(int *a)
{
	int r;
	asm volatile("{\n\t.reg .pred p;\n\t.reg .b32 t<4>;\n\tmov.b32 t1, %1;\n\t{ .reg .b32 t1; mov.b32 t1, 7; add.s32 %0, t1, 1; }\n\t"
		"setp.ne.s32 p, t1, 0;\n\t@p st.global.u32 [%2], t1;\n\t@!p st.global.u32 [%2+4], 5;\n"
		"L: /* a loop */ add.s32 t1, t1, 1; // count\n\tsetp.lt.s32 p, t1, 10;\n\t@p bra L;\n\tadd.s32 %0, %0, t1;\n\t}"
		: "=&r"(r) : "r"(a[0]), "l"(a) : "memory");
	asm volatile("{ L: .reg .pred q; setp.eq.s32 q, %0, 0; @q bra L; }" :: "r"(r | 1));
	a[2] = r;
}
