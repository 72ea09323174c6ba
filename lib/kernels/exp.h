/* exp.h: the constants of exp, common to all levels.
 *
 *   x = n ln2 + r,  |r| <= ln2/2        exp(x) = 2^n (1 + r + r^2 q(r)),  q of degree 4
 *
 * n is read off x log2(e) + EXP_ROUND: at 1.5 * 2^23 floats are integers, so the addition rounds,
 * and the 127 in EXP_ROUND is the exponent bias, so the low bits of the sum, shifted to the
 * exponent's place, are 2^n.  ln2 is split (Cody and Waite) so that n * EXP_LN2_HI is exact without
 * fused arithmetic.  q is a minimax fit by Remez's exchange, its coefficients rounded to float one
 * after the other and the rest fitted again: relative error 5.7e-9, a tenth of half an ulp.  exp(0)
 * is 1 exactly, because r is 0 and all else is multiplied by it.
 *
 * Below EXP_LOWEST, the smallest x whose exp is a normal number, the result is 0.  exp therefore
 * makes no denormal, and its bits do not depend on whether the thread flushes them.  A NaN gives 0
 * too, so -inf - -inf needs no case of its own.  x must not exceed 88.
 */
#ifndef ATTN_LIB_KERNELS_EXP_H
#define ATTN_LIB_KERNELS_EXP_H

#define EXP_LOWEST -87.33654f
#define EXP_LOG2E 0x1.715476p+0f
#define EXP_ROUND (0x1.8p+23f + 127.0f)
#define EXP_LN2_HI 0x1.63p-1f
#define EXP_LN2_LO -0x1.bd0106p-13f
#define EXP_Q0 0x1.fffffcp-2f
#define EXP_Q1 0x1.555494p-3f
#define EXP_Q2 0x1.555890p-5f
#define EXP_Q3 0x1.123720p-7f
#define EXP_Q4 0x1.6a93e6p-10f

#endif
