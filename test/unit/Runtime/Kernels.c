// Kernels with the interface of compiled ones, for the runtime's tests. The
// stand-in for a GPU needs their numbers of arguments as well, and of tensor
// maps.

#include <stdint.h>
#include <string.h>

// out[row] = a[row] + b[row], rows of 16 floats.
const int test_add_arguments = 3;
void test_add(void *const *args, int64_t begin, int64_t end) {
  const float *a = args[0], *b = args[1];
  float *out = args[2];
  for (int64_t i = begin * 16; i < end * 16; ++i)
    out[i] = a[i] + b[i];
}

// out[program] = program.
const int test_number_arguments = 1;
void test_number(void *const *args, int64_t begin, int64_t end) {
  float *out = args[0];
  for (int64_t i = begin; i < end; ++i)
    out[i] = (float)i;
}

// out = -inf where the input is 0, as the logarithm is, else NaN.
const int test_pole_arguments = 2;
void test_pole(void *const *args, int64_t begin, int64_t end) {
  const float *in = args[0];
  float *out = args[1];
  float zero = in[0] * 0.0f;
  *out = in[0] == 0.0f ? -1.0f / zero : zero / zero;
}

// Uses a large part of the stack that a kernel may have.
const int test_stack_arguments = 1;
void test_stack(void *const *args, int64_t begin, int64_t end) {
  volatile char tile[3 << 20];
  float *out = args[0];
  for (int64_t i = 0; i < (int64_t)sizeof tile; i += 512)
    tile[i] = (char)i;
  for (int64_t i = begin; i < end; ++i)
    out[i] = (float)tile[512 * i];
}

// The first of 4 columns: out[program][0] = program * in.
const int test_column_arguments = 2;
void test_column(void *const *args, int64_t begin, int64_t end) {
  const float *in = args[0];
  float *out = args[1];
  for (int64_t i = begin; i < end; ++i)
    out[4 * i] = (float)i * *in;
}

// out = what a launch passes besides it: the address of the other argument and
// two tensor maps, 264 bytes.
const int test_maps_arguments = 2, test_maps_maps = 2;
void test_maps(void *const *args, int64_t begin, int64_t end) {
  char *out = args[1];
  memcpy(out, &args[0], 8);
  memcpy(out + 8, args[2], 128);
  memcpy(out + 136, args[3], 128);
}
