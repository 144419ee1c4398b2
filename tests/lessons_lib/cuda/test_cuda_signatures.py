"""What Python may call in a CUDA text, read from the C++ declarations themselves."""

import ctypes

import pytest

from lessons_lib import CompileError
from lessons_lib.cuda.signatures import functions

PARAMS = """
#include <cstdint>
using index_t = int64_t;  // as PyTorch's
typedef unsigned short small;
struct Params {
  const float* __restrict__ q;  // (num_seqs, head_size); not `int q`
  float *out, *lse;             /* two fields; a comma, and a ; */
  int num_seqs, num_q_heads;
  index_t stride;
  bool causal;
};
"""


def read(parameters: str, before: str = ""):
    text = f'{before}extern "C" int f({parameters}) {{ return 0; }}'
    return functions({"your code": text})["f"]


@pytest.mark.parametrize("place", range(4))
def test_a_parameter_or_field_that_cannot_be_passed_is_named_at_its_line(place):
    names = ["  what is this" if place == number else f"int a{number}" for number in range(4)]
    with pytest.raises(CompileError, match="what is this") as caught:
        read(",\n".join(names))
    assert caught.value.line == 1 + place
    fields = "".join(f"{name};\n" for name in names).replace("  what is this", "x")
    with pytest.raises(CompileError, match="struct Sizes: the parameter `x` needs") as caught:
        read("Sizes sizes", before=f"// a comment\nstruct Sizes {{\n{fields}}};\n")
    assert caught.value.line == 3 + place


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_name_may_be_one_for_another_and_so_on(count):
    names = "".join(f"using T{n + 1} = T{n}; " for n in range(1, count))
    (found,) = read(f"T{count} a", before=f"using T1 = std::int64_t; {names}").parameters
    assert found.type == "long long"


def test_names_that_go_round_in_a_circle_are_an_error():
    circle = "using A = B; using B = A; "
    with pytest.raises(CompileError, match="cannot pass the parameter `A a`"):
        read("A a", before=circle)


@pytest.mark.parametrize(
    "parameter, type, pointer, const",
    [
        ("const float* __restrict__ a", "float", True, True),
        ("float const *a", "float", True, True),
        ("const float *const a", "float", True, True),
        ("float* const a", "float", True, False),
        ("double *a", "double", True, False),
        ("const __half* a", "__half", True, True),
        ("half* a", "__half", True, False),
        ("__nv_bfloat16* a", "__nv_bfloat16", True, False),
        ("const std::int32_t* a", "int", True, True),
        ("::size_t a", "unsigned long long", False, False),
        ("const int64_t* a", "long long", True, True),
        ("const long long int* a", "long long", True, True),
        ("unsigned char* a", "unsigned char", True, False),
        ("const bool* a", "bool", True, True),
        ("void* a", "void", True, False),
        ("int a", "int", False, False),
        ("unsigned a", "unsigned", False, False),
        ("unsigned int a", "unsigned", False, False),
        ("size_t a", "unsigned long long", False, False),
        ("float a", "float", False, False),
        ("bool a", "bool", False, False),
        ("cudaStream_t a", "cudaStream_t", False, False),
        ("CUstream_st* a", "cudaStream_t", False, False),
        ("struct CUstream_st *a", "cudaStream_t", False, False),
    ],
)
def test_types(parameter, type, pointer, const):
    (found,) = read(parameter).parameters
    assert (found.name, found.type, found.pointer) == ("a", type, pointer)
    assert found.const == const


ONE = 'extern "C" int first(int a) { return 0; }\nint hidden(int a) { return a; }'
TWO = """extern "C"
cudaError_t second(
    const float* a,  // the input, (n,)
    int n /* how many, at most */, cudaStream_t stream) { int local(3); return cudaSuccess; }
extern "C" { int third() { if (int(x)) { return other(3); } return 1; }
  static int hidden_too(int a) { return 2; }
  int fourth(void);
  cudaError_t fifth(float* a); }
namespace n { extern "C" int sixth(int a) { return 0; } int between(int a); }
// extern "C" int no(int a)
const char* text = "extern \\"C\\" int neither(int a)";
const char* other = R"(
extern "C" int no(int a);
)";
extern "C" { struct S { int method(int a); }; }
int after(int a) { return 0; }
extern "C" const char* words(int a) { int local(3); return ""; }
extern "C" int first(int a);"""


def test_all_forms_of_functions_are_found_and_nothing_else():
    found = functions({"one": ONE, "two": TWO})
    assert sorted(found) == ["fifth", "first", "fourth", "second", "sixth", "third"]
    assert str(found["second"]) == "second(const float* a, int n)"
    assert [parameter.name for parameter in found["second"].parameters] == ["a", "n", "stream"]
    assert found["third"].parameters == found["fourth"].parameters == ()


def test_a_struct_is_read_with_its_fields():
    function = read("const Params params, small s, cudaStream_t t", PARAMS)
    assert str(function) == (
        "f(const float* q, float* out, float* lse, int num_seqs, int num_q_heads, "
        "long long stride, bool causal, unsigned short s)"
    )
    assert ctypes.sizeof(function.parameters[0].ctype) == 48


@pytest.mark.parametrize(
    "parameter, words",
    [
        ("int a = 3", "a default value, `int a = 3`, is not known to Python"),
        ("Foo a", "cannot pass the parameter `Foo a`. What it can pass: pointers to float"),
        ("float** a", "cannot pass the parameter `float** a`"),
        ("float **a", "cannot pass the parameter `float **a`"),
        ("const int& a", "cannot pass the parameter `const int& a`"),
        ("const float4* a", "cannot pass the parameter `const float4* a`"),
        ("std::vector<float> a", "cannot pass the parameter `std::vector<float> a`"),
        ("float a[3]", "`float a[3]` needs a type and a name"),
        ("float*", "`float*` needs a type and a name"),
        ("unsigned int", "`unsigned int` needs a type and a name"),
        ("int a, float a", "two parameters or fields called a"),
    ],
)
def test_a_parameter_that_python_cannot_pass_is_named(parameter, words):
    with pytest.raises(CompileError) as caught:
        read(parameter, before="// a comment\n")
    assert words in str(caught.value) and "\n    extern" in str(caught.value)
    assert caught.value.line == 2


@pytest.mark.parametrize(
    "field, words",
    [
        ("int a = 3;", "a default value"),
        ("float a[3];", "needs a type and a name"),
        ("int size() const;", "it has fields only"),
        ("cudaStream_t a;", "no pointer and no number"),
        ("Params inner;", "holds itself"),
        ("int a : 3;", "it has fields only"),
        ("int a{3};", "it has fields only"),
        ("", "has no fields"),
        ("dim3 grid;", "struct Params: Python cannot pass the parameter `dim3 grid`"),
        ("Other inner;", "no pointer and no number"),
    ],
)
def test_a_struct_that_python_cannot_pass_is_an_error_at_its_line(field, words):
    with pytest.raises(CompileError) as caught:
        read(
            "Params params",
            before=f"struct Other {{ int a; }};\nstruct Params {{\n  {field}\n}};\n",
        )
    assert words in str(caught.value) and caught.value.line in (2, 3)


def test_a_struct_that_does_not_end_is_an_error_at_its_brace():
    text = 'extern "C" int f(Sizes sizes);\n\nstruct Sizes {\n  int a;\n'
    with pytest.raises(CompileError, match="the struct Sizes has no closing brace") as caught:
        functions({"your code": text})
    assert caught.value.line == 3


def test_a_text_without_a_function_says_what_is_missing():
    with pytest.raises(CompileError, match='begins with  extern "C" int name'):
        functions({"your code": "__global__ void k() {}"})
    with pytest.raises(CompileError, match="the parameters of f have no closing parenthesis"):
        functions({"your code": 'extern "C" int f(int a; {}'})


def test_a_struct_may_be_passed_to_several_functions_and_twice_to_one():
    text = """struct Sizes { int rows; int columns; };
extern "C" int f(float* a, Sizes sizes) { return 0; }
extern "C" int g(Sizes sizes, float* b) { return 0; }"""
    found = functions({"your code": text})
    assert [str(function) for function in found.values()] == [
        "f(float* a, int rows, int columns)",
        "g(int rows, int columns, float* b)",
    ]
    with pytest.raises(CompileError, match="f has two parameters or fields called columns"):
        functions({"your code": text + 'extern "C" int f(Sizes a, Sizes b) { return 0; }'})
