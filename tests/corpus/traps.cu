/* traps, breakpoints, exits */
extern "C" __global__ void kernel(int *a)
{
	if (a[0] == 1) __trap();
	if (a[0] == 2) __brkpt();
	if (a[0] == 3) asm volatile("exit;");
	if (a[0] == 4) __builtin_unreachable();
	a[1] = __builtin_expect(a[2], 1) ? 3 : 4;
}
