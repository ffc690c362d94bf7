# Included after find_package(MLIR): makes MLIR's static libraries ask for the
# components of LLVM that the compiler needs: the processor's, NVPTX and the
# passes, where their package names LLVM's shared library.
set(MLIR_LINK_MLIR_DYLIB OFF)
set(LLVM_LINK_LLVM_DYLIB OFF)

llvm_map_components_to_libnames(_components
  Passes Target TargetParser ${LLVM_NATIVE_ARCH} NVPTX)
add_library(NSALLVMComponents INTERFACE)
target_link_libraries(NSALLVMComponents INTERFACE ${_components})

# nsa_replace_library(TARGET OLD NEW): what an imported library asks for.
function(nsa_replace_library target old new)
  get_target_property(_libraries ${target} INTERFACE_LINK_LIBRARIES)
  if(_libraries)
    list(TRANSFORM _libraries REPLACE "^${old}$" "${new}")
    set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${_libraries}")
  endif()
endfunction()

foreach(_target ${MLIR_EXPORTED_TARGETS})
  if(TARGET ${_target})
    get_target_property(_type ${_target} TYPE)
    if(_type STREQUAL "STATIC_LIBRARY")
      nsa_replace_library(${_target} LLVM NSALLVMComponents)
    endif()
  endif()
endforeach()

# Libraries of the system go in as well, or not at all: Z3 is the static
# analyzer's.
nsa_replace_library(LLVMSupport "zstd::libzstd_shared" "zstd::libzstd_static")
nsa_replace_library(LLVMSupport ".*/libz3[.]so" "")
