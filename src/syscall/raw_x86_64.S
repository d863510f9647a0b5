/* long egpu_raw_syscall(long number, a, b, c, d, e, f) */
	.text
	.globl	egpu_raw_syscall
	.hidden	egpu_raw_syscall
	.type	egpu_raw_syscall, @function
egpu_raw_syscall:
	.cfi_startproc
	mov	%rdi, %rax
	mov	%rsi, %rdi
	mov	%rdx, %rsi
	mov	%rcx, %rdx
	mov	%r8, %r10
	mov	%r9, %r8
	mov	8(%rsp), %r9
	syscall
	ret
	.cfi_endproc
	.size	egpu_raw_syscall, .-egpu_raw_syscall
	.section .note.GNU-stack, "", @progbits
