"""What Python may call in a CUDA text, and which values it may pass: read from the C++
declarations themselves.
"""

import ctypes

import pytest
import torch

from lessons_lib import CompileError
from lessons_lib.cuda_arguments import bind, check, has_gaps, span_bytes, to_c
from lessons_lib.cuda_signatures import Parameter, functions

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
def test_a_parameter_that_cannot_be_passed_is_named_at_its_line(place):
    good = ["int first", "  float* second", "bool third", "  cudaStream_t stream"]
    lines = ",\n".join(
        "  what is this" if number == place else words for number, words in enumerate(good)
    )
    with pytest.raises(CompileError, match="what is this") as caught:
        read(lines)
    assert caught.value.line == 1 + place


@pytest.mark.parametrize("place", range(5))
def test_so_is_one_that_begins_its_line_and_one_of_a_single_letter(place):
    lines = ["int a", "int b", "int c", "int d"]
    lines.insert(place, "x")
    with pytest.raises(CompileError, match="`x` needs a type and a name") as caught:
        read("\n" + ",\n".join(lines) + "\n")
    assert caught.value.line == 2 + place


@pytest.mark.parametrize("place", range(5))
def test_a_field_that_cannot_be_passed_is_named_at_its_line(place):
    lines = ["int a;", "int b;", "int c;", "int d;"]
    lines.insert(place, "x;")
    struct = "\n".join(["struct Sizes {", *lines, "};\n"])
    with pytest.raises(CompileError, match="struct Sizes: the parameter `x` needs") as caught:
        read("Sizes sizes", before=f"// a comment\n{struct}")
    assert caught.value.line == 3 + place


def test_a_number_has_no_fields():
    assert read("int a").parameters == (Parameter("a", "int", False, False, ()),)


@pytest.mark.parametrize("count", range(1, 8))
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
        ("const ::std::int32_t* a", "int", True, True),
        ("::size_t a", "unsigned long long", False, False),
        ("const int64_t* a", "long long", True, True),
        ("const long long int* a", "long long", True, True),
        ("unsigned char* a", "unsigned char", True, False),
        ("uint8_t* a", "unsigned char", True, False),
        ("const bool* a", "bool", True, True),
        ("void* a", "void", True, False),
        ("const void *a", "void", True, True),
        ("int a", "int", False, False),
        ("const int a", "int", False, False),
        ("unsigned a", "unsigned", False, False),
        ("unsigned int a", "unsigned", False, False),
        ("size_t a", "unsigned long long", False, False),
        ("std::size_t a", "unsigned long long", False, False),
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


def test_all_forms_of_functions_are_found():
    found = functions(
        {
            "one": (
                'extern "C" int first(int a) { return 0; }\nint hidden(int a) { return a; }'
            ),
            "two": (
                """extern "C"
cudaError_t second(
    const float* a,  // the input, (n,)
    int n /* how many, at most */, cudaStream_t stream) { int local(3); return cudaSuccess; }
extern "C" { int third() { if (int(x)) { return other(3); } return 1; }
  static int hidden_too(int a) { return 2; }
  int fourth(void);
  cudaError_t fifth(float* a); }
namespace n { extern "C" int sixth(int a) { return 0; } }
// extern "C" int no(int a)
const char* text = "extern \\"C\\" int neither(int a)";
extern "C" const char* words(int a) { int local(3); return ""; }
extern "C" int first(int a);"""
            ),
        }
    )
    assert sorted(found) == ["fifth", "first", "fourth", "second", "sixth", "third"]
    assert str(found["second"]) == "second(const float* a, int n)"
    assert [parameter.name for parameter in found["second"].parameters] == ["a", "n", "stream"]
    assert found["third"].parameters == found["fourth"].parameters == ()


def test_what_is_outside_of_a_block_or_in_a_string_is_no_function_of_it():
    found = functions(
        {
            "your code": """const char* text = "extern \"C\" int no(int a);";
const char* other = R"(
extern "C" int no(int a);
)";
int before(int a);
namespace n { extern "C" { int inside(int a); } int between(int a); }
extern "C" { struct S { int method(int a); }; }
int after(int a) { return 0; }
extern "C" int last(int a);"""
        }
    )
    assert list(found) == ["inside", "last"]


def test_a_struct_is_read_with_its_fields():
    function = read("const Params params, small s, cudaStream_t t", PARAMS)
    assert (
        str(function)
        == "f(const float* q, float* out, float* lse, int num_seqs, int num_q_heads, long long"
        " stride, bool causal, unsigned short s)"
    )
    structure = function.parameters[0].ctype
    assert issubclass(structure, ctypes.Structure) and ctypes.sizeof(structure) == 48
    assert [name for name, _ in structure._fields_] == [
        "q",
        "out",
        "lse",
        "num_seqs",
        "num_q_heads",
        "stride",
        "causal",
    ]


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
    assert (
        words in str(caught.value)
        and caught.value.line == 2
        and "\n    extern" in str(caught.value)
    )


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


TWO = functions(
    {
        "params.cuh": PARAMS,
        "kernel.cu": (
            'extern "C" int f(Params p, const int* table, int n, cudaStream_t s) {}\n'
            'extern "C" int g(const float* a, void* out, float scale, bool fast) {}'
        ),
    }
)


def fields(**changed):
    return {
        "q": torch.zeros(3),
        "out": torch.zeros(3),
        "lse": None,
        "num_seqs": 1,
        "num_q_heads": 2,
        "stride": 2**40,
        "causal": True,
        "table": torch.zeros(2, dtype=torch.int32),
        "n": 3,
    } | changed


def test_arguments_come_by_position_or_by_keyword():
    assert bind(TWO["g"], (1, 2), {"fast": 4, "scale": 3}) == {
        "a": 1,
        "out": 2,
        "scale": 3,
        "fast": 4,
    }
    struct = {name: value for name, value in fields().items() if name not in ("table", "n")}
    assert list(bind(TWO["f"], (7, 8), struct))[:2] == ["table", "n"]
    assert bind(TWO["f"], (), fields())["n"] == 3


@pytest.mark.parametrize(
    "values, named, words",
    [
        (
            (1, 2, 3),
            {},
            (
                "g: missing argument fast. "
                "It takes: g\\(const float\\* a, void\\* out, float scale, bool fast\\)"
            ),
        ),
        ((), {"a": 1, "fast": 2}, "g: missing arguments out, scale"),
        ((1, 2, 3, 4), {"speed": 3}, "g: unknown argument speed"),
        ((1, 2, 3, 4), {"a": 3}, "g: a is given twice"),
        ((1, 2, 3, 4, 5), {}, "g takes 4 arguments by position, not 5"),
    ],
)
def test_arguments_that_do_not_fit_together(values, named, words):
    with pytest.raises(TypeError, match=words):
        bind(TWO["g"], values, named)
    with pytest.raises(TypeError, match="a struct's fields are given by keyword"):
        bind(TWO["f"], (1, 2, 3), {})


@pytest.mark.parametrize(
    "changed, error, words",
    [
        ({"q": [1.0]}, TypeError, "f: q takes a tensor .const float. q., not list"),
        (
            {"q": torch.zeros(3, dtype=torch.float64)},
            TypeError,
            "f: q takes a tensor of torch.float32 .const float. q., not torch.float64",
        ),
        (
            {"table": torch.zeros(3, dtype=torch.int64)},
            TypeError,
            "f: table takes a tensor of torch.int32",
        ),
        (
            {"q": torch.zeros(3, device="meta")},
            ValueError,
            "f: q is on meta, but this library was built for the CPU: pass q.cpu",
        ),
        (
            {"q": torch.zeros(3).to_sparse()},
            ValueError,
            "f: q is a tensor of the layout torch.sparse_coo",
        ),
        ({"n": 3.0}, TypeError, "f: n takes a whole number .int n., not float"),
        (
            {"n": torch.tensor(3)},
            TypeError,
            "f: n takes a number .int n., not a tensor; pass n.item",
        ),
        ({"n": 2**31}, ValueError, "f: n is 2147483648, which does not fit into int"),
        ({"n": None}, TypeError, "f: n takes a whole number"),
        ({"causal": 2}, ValueError, "f: causal takes True or False"),
    ],
)
def test_values_are_checked_by_name(changed, error, words):
    with pytest.raises(error, match=words):
        check(TWO["f"], fields(**changed), "cpu")


def test_a_cpu_tensor_is_refused_for_the_gpu():
    with pytest.raises(
        ValueError, match="f: q is on cpu, but this library was built for the GPU: pass q.cuda"
    ):
        check(TWO["f"], fields(), "cuda")


def test_void_takes_any_dtype_and_numbers_take_what_counts_as_one():
    numpy = pytest.importorskip("numpy")
    values = {"a": None, "out": torch.zeros(2, dtype=torch.complex64), "scale": 2, "fast": 0}
    assert (
        check(TWO["g"], values, "cpu") == torch.device("cpu")
        and values["scale"] == 2.0
        and values["fast"] is False
    )
    values = fields(n=numpy.int64(3), stride=True)
    check(TWO["f"], values, "cpu")
    assert values["n"] == 3 and values["stride"] == 1
    assert (
        check(
            TWO["g"], {"a": None, "out": None, "scale": numpy.float32(2), "fast": False}, "cpu"
        )
        is None
    )


def test_a_struct_is_filled_and_none_is_a_null_pointer():
    values = fields() | {"q": 16, "out": 32, "table": 48}
    params, table, n, stream = to_c(TWO["f"], values, 64)
    assert (params.q, params.out, params.lse, params.stride, params.causal) == (
        16,
        32,
        None,
        2**40,
        True,
    )
    assert (table, n, stream.value) == (48, 3, 64)
    assert isinstance(params, TWO["f"].parameters[0].ctype)


def test_the_memory_of_a_tensor():
    whole = torch.zeros(4, 6)
    assert (span_bytes(whole), has_gaps(whole)) == (96, False)
    assert (span_bytes(whole[1:3, 2:4]), has_gaps(whole[1:3, 2:4])) == (32, True)
    assert (span_bytes(whole.T), has_gaps(whole.T)) == (96, False)
    assert (span_bytes(whole[:0]), has_gaps(whole[:0])) == (0, False)
    assert (span_bytes(whole[0, 0]), has_gaps(whole[0, 0])) == (4, False)
    assert (span_bytes(whole[:1].expand(3, 6)), has_gaps(whole[:1].expand(3, 6))) == (24, True)


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
