// Loads and stores: whole vectors, the first n lanes, lanes under a mask, gathered lanes; conversion from and to storage.
#include "braze/codegen/cpp/prelude.h"

namespace braze::codegen {

namespace {

constexpr Snippet kSnippets[] = {
    // Unaligned access to any vector type.
    {"ldu", kAlways, R"(template <class T> F T ldu(const void* p) { struct __attribute__((packed, may_alias)) P { T v; }; return ((const P*)p)->v; }
)"},
    {"stu", kAlways, R"(template <class T> F void stu(void* p, T v) { struct __attribute__((packed, may_alias)) P { T v; }; ((P*)p)->v = v; }
)"},
    {"iota_i", kAlways, "#define iota_i (VI{@iota})\n"},
    {"iota_l", kAlways, "#define iota_l (VL{@iota})\n"},
    // The first n lanes as a mask.
    {"live", kAlways, "F VI live(long n) { return iota_i < (VI{} + (int)n); }\n"},
    {"bits", kAlways, "F unsigned bits(long n) { return (1u << n) - 1; }\n"},
    {"kmask", k512 | kLanes16, "F unsigned short kmask(VI m) { return (unsigned short)__builtin_ia32_cvtd2mask512(m); }\n"},
    {"kmask", k512 | kLanes8, "F unsigned char kmask(VI m) { return (unsigned char)__builtin_ia32_cvtd2mask256(m); }\n"},
    {"any", k512, "F bool any(VI m) { return kmask(m) != 0; }\n"},
    {"any", kNot512, "F bool any(VI m) { int r = 0; for (int i = 0; i < @L; i++) r |= m[i]; return r != 0; }\n"},

    // Raw partial access by element size, AVX-512: bit i of m is lane i.
    {"ldk4", k512 | kLanes16, "F VI ldk4(const void* p, unsigned m) { return __builtin_ia32_loaddqusi512_mask((const int*)p, VI{}, (unsigned short)m); }\n"},
    {"ldk4", k512 | kLanes8, "F VI ldk4(const void* p, unsigned m) { return __builtin_ia32_loaddqusi256_mask((const int*)p, VI{}, (unsigned char)m); }\n"},
    {"stk4", k512 | kLanes16, "F void stk4(void* p, VI v, unsigned m) { __builtin_ia32_storedqusi512_mask((int*)p, v, (unsigned short)m); }\n"},
    {"stk4", k512 | kLanes8, "F void stk4(void* p, VI v, unsigned m) { __builtin_ia32_storedqusi256_mask((int*)p, v, (unsigned char)m); }\n"},
    {"X8", k512, "typedef long long X8 __attribute__((vector_size(64)));\n"},
    {"ldk8", k512 | kLanes8, "F VL ldk8(const void* p, unsigned m) { return (VL)__builtin_ia32_loaddqudi512_mask((const long long*)p, X8{}, (unsigned char)m); }\n"},
    {"stk8", k512 | kLanes8, "F void stk8(void* p, VL v, unsigned m) { __builtin_ia32_storedqudi512_mask((long long*)p, (X8)v, (unsigned char)m); }\n"},
    {"ldk8", k512 | kLanes16, R"(F VL ldk8(const void* p, unsigned m) {
  X8 a = __builtin_ia32_loaddqudi512_mask((const long long*)p, X8{}, (unsigned char)m), b = __builtin_ia32_loaddqudi512_mask((const long long*)p + 8, X8{}, (unsigned char)(m >> 8));
  return (VL)__builtin_shufflevector(a, b, @iota);
}
)"},
    {"stk8", k512 | kLanes16, R"(F void stk8(void* p, VL v, unsigned m) {
  __builtin_ia32_storedqudi512_mask((long long*)p, (X8)__builtin_shufflevector(v, v, @low), (unsigned char)m);
  __builtin_ia32_storedqudi512_mask((long long*)p + 8, (X8)__builtin_shufflevector(v, v, @high), (unsigned char)(m >> 8));
}
)"},
    // clang's builtins take pointers to vectors here, GCC's pointers to elements.
    {"X1", k512, "typedef char X1 __attribute__((vector_size(16)));\n"},
    {"P1", k512, "#ifdef __clang__\ntypedef X1 P1;\n#else\ntypedef char P1;\n#endif\n"},
    {"P2", k512, "#ifdef __clang__\ntypedef VS P2;\n#else\ntypedef short P2;\n#endif\n"},
    {"ldk2", k512 | kLanes16, "F VS ldk2(const void* p, unsigned m) { return __builtin_ia32_loaddquhi256_mask((const P2*)p, VS{}, (unsigned short)m); }\n"},
    {"ldk2", k512 | kLanes8, "F VS ldk2(const void* p, unsigned m) { return __builtin_ia32_loaddquhi128_mask((const P2*)p, VS{}, (unsigned char)m); }\n"},
    {"stk2", k512 | kLanes16, "F void stk2(void* p, VS v, unsigned m) { __builtin_ia32_storedquhi256_mask((P2*)p, v, (unsigned short)m); }\n"},
    {"stk2", k512 | kLanes8, "F void stk2(void* p, VS v, unsigned m) { __builtin_ia32_storedquhi128_mask((P2*)p, v, (unsigned char)m); }\n"},
    {"ldk1", k512 | kLanes16, "F VC ldk1(const void* p, unsigned m) { return (VC)__builtin_ia32_loaddquqi128_mask((const P1*)p, X1{}, (unsigned short)m); }\n"},
    {"stk1", k512 | kLanes16, "F void stk1(void* p, VC v, unsigned m) { __builtin_ia32_storedquqi128_mask((P1*)p, (X1)v, (unsigned short)m); }\n"},
    {"ldk1", k512 | kLanes8, "F VC ldk1(const void* p, unsigned m) { X1 v = __builtin_ia32_loaddquqi128_mask((const P1*)p, X1{}, (unsigned short)m); return (VC)__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7); }\n"},
    {"stk1", k512 | kLanes8, "F void stk1(void* p, VC v, unsigned m) { X1 w = (X1)__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7); __builtin_ia32_storedquqi128_mask((P1*)p, w, (unsigned short)m); }\n"},
    // Elsewhere: lane by lane through memory.
    {"ld_part", kAlways, R"(template <class T, class E> SLOW T ld_part(const void* p, long n) { E t[@L] = {}; for (long i = 0; i < n; i++) t[i] = ((const E*)p)[i]; return ldu<T>(t); }
)"},
    {"st_part", kAlways, R"(template <class T, class E> SLOW void st_part(void* p, T v, long n) { E t[@L]; stu(t, v); for (long i = 0; i < n; i++) ((E*)p)[i] = t[i]; }
)"},
    {"ld_under", kAlways, R"(template <class T, class E> SLOW T ld_under(const void* p, VI m) { E t[@L] = {}; int k[@L]; stu(k, m); for (long i = 0; i < @L; i++) if (k[i]) t[i] = ((const E*)p)[i]; return ldu<T>(t); }
)"},
    // The first n lanes (n at most @L); the others are 0. Masked loads and stores stream from memory at half the pace of
    // plain ones, so whole vectors branch past them.
    {"ldn4", k512, "F VI ldn4(const void* p, long n) { return n >= @L ? ldu<VI>(p) : ldk4(p, bits(n)); }\n"},
    {"ldn8", k512, "F VL ldn8(const void* p, long n) { return n >= @L ? ldu<VL>(p) : ldk8(p, bits(n)); }\n"},
    {"ldn2", k512, "F VS ldn2(const void* p, long n) { return n >= @L ? ldu<VS>(p) : ldk2(p, bits(n)); }\n"},
    {"ldn1", k512, "F VC ldn1(const void* p, long n) { return n >= @L ? ldu<VC>(p) : ldk1(p, bits(n)); }\n"},
    {"ldn4", kNot512, "F VI ldn4(const void* p, long n) { return n >= @L ? ldu<VI>(p) : ld_part<VI, int>(p, n); }\n"},
    {"ldn8", kNot512, "F VL ldn8(const void* p, long n) { return n >= @L ? ldu<VL>(p) : ld_part<VL, long>(p, n); }\n"},
    {"ldn2", kNot512, "F VS ldn2(const void* p, long n) { return n >= @L ? ldu<VS>(p) : ld_part<VS, short>(p, n); }\n"},
    {"ldn1", kNot512, "F VC ldn1(const void* p, long n) { return n >= @L ? ldu<VC>(p) : ld_part<VC, signed char>(p, n); }\n"},
    {"stn4", k512, "F void stn4(void* p, VI v, long n) { if (n >= @L) stu(p, v); else stk4(p, v, bits(n)); }\n"},
    {"stn8", k512, "F void stn8(void* p, VL v, long n) { if (n >= @L) stu(p, v); else stk8(p, v, bits(n)); }\n"},
    {"stn2", k512, "F void stn2(void* p, VS v, long n) { if (n >= @L) stu(p, v); else stk2(p, v, bits(n)); }\n"},
    {"stn1", k512, "F void stn1(void* p, VC v, long n) { if (n >= @L) stu(p, v); else stk1(p, v, bits(n)); }\n"},
    {"stn4", kNot512, "F void stn4(void* p, VI v, long n) { if (n >= @L) stu(p, v); else st_part<VI, int>(p, v, n); }\n"},
    {"stn8", kNot512, "F void stn8(void* p, VL v, long n) { if (n >= @L) stu(p, v); else st_part<VL, long>(p, v, n); }\n"},
    {"stn2", kNot512, "F void stn2(void* p, VS v, long n) { if (n >= @L) stu(p, v); else st_part<VS, short>(p, v, n); }\n"},
    {"stn1", kNot512, "F void stn1(void* p, VC v, long n) { if (n >= @L) stu(p, v); else st_part<VC, signed char>(p, v, n); }\n"},
    // Lanes under a mask; memory is read there only, the others are 0.
    {"ldm4", k512, "F VI ldm4(const void* p, VI m) { return ldk4(p, kmask(m)); }\n"},
    {"ldm8", k512, "F VL ldm8(const void* p, VI m) { return ldk8(p, kmask(m)); }\n"},
    {"ldm2", k512, "F VS ldm2(const void* p, VI m) { return ldk2(p, kmask(m)); }\n"},
    {"ldm1", k512, "F VC ldm1(const void* p, VI m) { return ldk1(p, kmask(m)); }\n"},
    {"ldm4", kNot512, "F VI ldm4(const void* p, VI m) { return ld_under<VI, int>(p, m); }\n"},
    {"ldm8", kNot512, "F VL ldm8(const void* p, VI m) { return ld_under<VL, long>(p, m); }\n"},
    {"ldm2", kNot512, "F VS ldm2(const void* p, VI m) { return ld_under<VS, short>(p, m); }\n"},
    {"ldm1", kNot512, "F VC ldm1(const void* p, VI m) { return ld_under<VC, signed char>(p, m); }\n"},

    // Storage to register form and back; x is a vector of the storage's integers.
    {"HF", kAlways, "typedef _Float16 HF __attribute__((vector_size(@2)));\n"},
    {"in_f32", kAlways, "F VF in_f32(VI x) { return (VF)x; }\n"},
    {"in_f64", kAlways, "F VD in_f64(VL x) { return (VD)x; }\n"},
    {"in_bf16", kAlways, "F VF in_bf16(VS x) { return (VF)(__builtin_convertvector((VH)x, VU) << 16); }\n"},
    {"in_f16", kAlways, "F VF in_f16(VS x) { return __builtin_convertvector((HF)x, VF); }\n"},
    {"in_i32", kAlways, "F VI in_i32(VI x) { return x; }\n"},
    {"in_u32", kAlways, "F VU in_u32(VI x) { return (VU)x; }\n"},
    {"in_i64", kAlways, "F VL in_i64(VL x) { return x; }\n"},
    {"in_u64", kAlways, "F VK in_u64(VL x) { return (VK)x; }\n"},
    {"in_i16", kAlways, "F VI in_i16(VS x) { return __builtin_convertvector(x, VI); }\n"},
    {"in_u16", kAlways, "F VI in_u16(VS x) { return __builtin_convertvector((VH)x, VI); }\n"},
    {"in_i8", kAlways, "F VI in_i8(VC x) { return __builtin_convertvector(x, VI); }\n"},
    {"in_u8", kAlways, "F VI in_u8(VC x) { return __builtin_convertvector((VB)x, VI); }\n"},
    {"in_b8", kAlways, "F VI in_b8(VC x) { return __builtin_convertvector((VB)x, VI) != 0; }\n"},
    {"out_f32", kAlways, "F VI out_f32(VF x) { return (VI)x; }\n"},
    {"out_f64", kAlways, "F VL out_f64(VD x) { return (VL)x; }\n"},
    // Values are rounded already: the upper half is exact. NaN keeps a set bit there.
    {"X2", k512, "typedef short X2 __attribute__((vector_size(64)));\n"},
    // One instruction for the shift, and the two that narrowing takes.
    {"out_bf16", k512 | kLanes16, R"(#ifdef __clang__
F VS out_bf16(VF x) { X2 w = __builtin_ia32_permvarhi512((X2)x, X2{@odd, @odd}); return __builtin_shufflevector(w, w, @iota); }
#else
F VS out_bf16(VF x) { return (VS)__builtin_convertvector((VU)x >> 16, VH); }
#endif
)"},
    {"out_bf16", k512 | kLanes8, "F VS out_bf16(VF x) { return (VS)__builtin_convertvector((VU)x >> 16, VH); }\n"},
    {"out_bf16", kNot512, "F VS out_bf16(VF x) { return (VS)__builtin_convertvector((VU)x >> 16, VH); }\n"},
    {"out_f16", kAlways, "F VS out_f16(VF x) { return (VS)__builtin_convertvector(x, HF); }\n"},
    {"out_i32", kAlways, "F VI out_i32(VI x) { return x; }\n"},
    {"out_u32", kAlways, "F VI out_u32(VU x) { return (VI)x; }\n"},
    {"out_i64", kAlways, "F VL out_i64(VL x) { return x; }\n"},
    {"out_u64", kAlways, "F VL out_u64(VK x) { return (VL)x; }\n"},
    {"out_i16", kAlways, "F VS out_i16(VI x) { return __builtin_convertvector(x, VS); }\n"},
    {"out_u16", kAlways, "F VS out_u16(VI x) { return __builtin_convertvector(x, VS); }\n"},
    {"out_i8", kAlways, "F VC out_i8(VI x) { return __builtin_convertvector(x, VC); }\n"},
    {"out_u8", kAlways, "F VC out_u8(VI x) { return __builtin_convertvector(x, VC); }\n"},
    {"out_b8", kAlways, "F VC out_b8(VI x) { return __builtin_convertvector(x & 1, VC); }\n"},

    // Streaming store where the address allows it.
    {"stu_streaming", kAlways, R"(template <class T> F void stu_streaming(void* p, T v) {
  if (((unsigned long)p & (sizeof(T) - 1)) != 0) { stu(p, v); return; }
#ifdef __clang__
  __builtin_nontemporal_store(v, (T*)p);
#else
  *(T*)p = v;
#endif
}
)"},

    // Lanes from anywhere: p[a[i]]; or p[i * s]. Of n live lanes only.
    {"gather_lanes", kAlways, R"(template <class T, class E> SLOW T gather_lanes(const E* p, VL a, long n) {
  E t[@L] = {}; long k[@L]; stu(k, a);
  if (n >= @L) return T{@gathered};
  for (long i = 0; i < n; i++) t[i] = p[k[i]];
  return ldu<T>(t);
}
)"},
    {"gather_under", kAlways, R"(template <class T, class E> SLOW T gather_under(const E* p, VL a, VI m) { E t[@L] = {}; long k[@L]; int l[@L]; stu(k, a); stu(l, m); for (long i = 0; i < @L; i++) if (l[i]) t[i] = p[k[i]]; return ldu<T>(t); }
)"},
    {"gather4", k512 | kLanes16, R"(F VI gather4(const void* p, VL a, long n) {
  typedef int Y8 __attribute__((vector_size(32)));
  unsigned m = bits(n); X8 lo = (X8)__builtin_shufflevector(a, a, @low), hi = (X8)__builtin_shufflevector(a, a, @high);
  Y8 x = __builtin_ia32_gatherdiv16si(Y8{}, p, lo, (unsigned char)m, 4), y = __builtin_ia32_gatherdiv16si(Y8{}, p, hi, (unsigned char)(m >> 8), 4);
  return __builtin_shufflevector(x, y, @iota);
}
)"},
    {"gather4", k512 | kLanes8, "F VI gather4(const void* p, VL a, long n) { return gather_lanes<VI, int>((const int*)p, a, n); }\n"},
    {"gather4", kNot512, "F VI gather4(const void* p, VL a, long n) { return gather_lanes<VI, int>((const int*)p, a, n); }\n"},
    {"gather_near4", k512 | kLanes16, R"(F VI gather_near4(const void* p, VL a, long n) {
  VL r = a - a[0];
  if (any(__builtin_convertvector((VK)r >= 16ul, VI) & live(n))) return gather4(p, a, n);
  VI v = ldu<VI>((const int*)p + a[0]);
#ifdef __clang__
  return (VI)__builtin_ia32_permvarsi512(v, __builtin_convertvector(r, VI));
#else
  return __builtin_shuffle(v, __builtin_convertvector(r, VI));
#endif
}
)"},
    {"gather_near4", kNot512, "F VI gather_near4(const void* p, VL a, long n) { return gather4(p, a, n); }\n"},
    {"gather_near4", k512 | kLanes8, "F VI gather_near4(const void* p, VL a, long n) { return gather4(p, a, n); }\n"},
    {"gather8", kAlways, "F VL gather8(const void* p, VL a, long n) { return gather_lanes<VL, long>((const long*)p, a, n); }\n"},
    {"gather2", kAlways, "F VS gather2(const void* p, VL a, long n) { return gather_lanes<VS, short>((const short*)p, a, n); }\n"},
    {"gather1", kAlways, "F VC gather1(const void* p, VL a, long n) { return gather_lanes<VC, signed char>((const signed char*)p, a, n); }\n"},
    {"gatherm4", kAlways, "F VI gatherm4(const void* p, VL a, VI m) { return gather_under<VI, int>((const int*)p, a, m); }\n"},
    {"gatherm8", kAlways, "F VL gatherm8(const void* p, VL a, VI m) { return gather_under<VL, long>((const long*)p, a, m); }\n"},
    {"gatherm2", kAlways, "F VS gatherm2(const void* p, VL a, VI m) { return gather_under<VS, short>((const short*)p, a, m); }\n"},
    {"gatherm1", kAlways, "F VC gatherm1(const void* p, VL a, VI m) { return gather_under<VC, signed char>((const signed char*)p, a, m); }\n"},
    // Every second element from p on: two loads that end with the last of them. And backwards from p.
    {"even", kAlways, "template <class V, class E> F V even(const void* p) { return __builtin_shufflevector(ldu<V>(p), ldu<V>((const E*)p + @L - 1), @pairs); }\n"},
#define EVEN(size, vector, type)                                                                                        \
  {"even" size, kAlways, "F " vector " even" size "(const void* p) { return even<" vector ", " type ">(p); }\n"},        \
  {"evenn" size, k512, "F " vector " evenn" size "(const void* p, long n) { if (n >= @L) return even" size "(p); unsigned m = bits(2 * n - 1); return __builtin_shufflevector(ldk" size \
   "(p, m), ldk" size "((const " type "*)p + @L - 1, m >> (@L - 1)), @pairs); }\n"},                                     \
  {"evenn" size, kNot512, "F " vector " evenn" size "(const void* p, long n) { if (n >= @L) return even" size "(p); " vector " a = ldn" size \
   "(p, 2 * n - 1 < @L ? 2 * n - 1 : @Ll), b{}; if (2 * n > @L) b = ldn" size "((const " type "*)p + @L - 1, 2 * n - @L); " \
   "return __builtin_shufflevector(a, b, @pairs); }\n"},                                                               \
  {"back" size, kAlways, "F " vector " back" size "(const void* p) { " vector " a = ldu<" vector ">((const " type "*)p - (@L - 1)); return __builtin_shufflevector(a, a, @backwards); }\n"}
    EVEN("4", "VI", "int"),
    EVEN("8", "VL", "long"),
    EVEN("2", "VS", "short"),
    EVEN("1", "VC", "signed char"),
#undef EVEN
    // t[i][j] = q[j * stride + i] for i < ni, j < nj (at most @L): a tile that is contiguous along i, read along j.
    {"tile_in", kAlways, R"(template <class V, class E> SLOW void tile_in(const void* p, long stride, long ni, long nj, void* tile) {
  const E* q = (const E*)p; E* t = (E*)tile;
  if (ni >= @L && nj >= @L) { @transpose return; }
  for (long j = 0; j < nj; j++) for (long i = 0; i < ni; i++) t[i * @L + j] = q[j * stride + i];
}
)"},
    {"tile_in4", kAlways, "F void tile_in4(const void* p, long stride, long ni, long nj, void* tile) { tile_in<VI, int>(p, stride, ni, nj, tile); }\n"},
    {"tile_in8", kAlways, "F void tile_in8(const void* p, long stride, long ni, long nj, void* tile) { tile_in<VL, long>(p, stride, ni, nj, tile); }\n"},
    {"tile_in2", kAlways, "F void tile_in2(const void* p, long stride, long ni, long nj, void* tile) { tile_in<VS, short>(p, stride, ni, nj, tile); }\n"},
    {"tile_in1", kAlways, "F void tile_in1(const void* p, long stride, long ni, long nj, void* tile) { tile_in<VC, signed char>(p, stride, ni, nj, tile); }\n"},
    {"scatter_lanes", kAlways, R"(template <class T, class E> SLOW void scatter_lanes(E* p, VL a, T v, long n) { E t[@L]; long k[@L]; stu(t, v); stu(k, a); for (long i = 0; i < n; i++) p[k[i]] = t[i]; }
)"},
    {"scatter4", kAlways, "F void scatter4(void* p, VL a, VI v, long n) { scatter_lanes<VI, int>((int*)p, a, v, n); }\n"},
    {"scatter8", kAlways, "F void scatter8(void* p, VL a, VL v, long n) { scatter_lanes<VL, long>((long*)p, a, v, n); }\n"},
    {"scatter2", kAlways, "F void scatter2(void* p, VL a, VS v, long n) { scatter_lanes<VS, short>((short*)p, a, v, n); }\n"},
    {"scatter1", kAlways, "F void scatter1(void* p, VL a, VC v, long n) { scatter_lanes<VC, signed char>((signed char*)p, a, v, n); }\n"},
};

}  // namespace

std::span<const Snippet> memory_snippets() { return kSnippets; }

}  // namespace braze::codegen
