/* long egpu_raw_syscall(long number, a, b, c, d, e, f) */
	.text
	.globl	egpu_raw_syscall
	.hidden	egpu_raw_syscall
	.type	egpu_raw_syscall, %function
egpu_raw_syscall:
	.cfi_startproc
	mov	x8, x0
	mov	x0, x1
	mov	x1, x2
	mov	x2, x3
	mov	x3, x4
	mov	x4, x5
	mov	x5, x6
	svc	#0
	ret
	.cfi_endproc
	.size	egpu_raw_syscall, .-egpu_raw_syscall
	.section .note.GNU-stack, "", %progbits
