/* Has a program of cases make its system calls by the instruction, which no library sees. */
#define _GNU_SOURCE
#include <errno.h>
#include <unistd.h>
#include <sys/syscall.h>

__attribute__((unused)) static long by_instruction(long number, long a, long b, long c, long d, long e, long f) {
#ifdef __x86_64__
    register long fourth __asm__("r10") = d, fifth __asm__("r8") = e, sixth __asm__("r9") = f;
    long result = number;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
#else
    register long called __asm__("x8") = number, result __asm__("x0") = a;
    register long second __asm__("x1") = b, third __asm__("x2") = c, fourth __asm__("x3") = d, fifth __asm__("x4") = e,
                  sixth __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(result)
                     : "r"(called), "r"(second), "r"(third), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "memory");
#endif
    if (result >= 0 || result < -4095) return result;
    errno = (int)-result;
    return -1;
}

#define SEVENTH(n, a, b, c, d, e, f, ...) by_instruction((long)(n), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define syscall(...) SEVENTH(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
