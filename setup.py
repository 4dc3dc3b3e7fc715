"""The compiled modules; everything else about the build is in pyproject.toml."""
import os, sys
from pathlib import Path
from setuptools import Extension, setup
from Cython.Build import cythonize
K=Path('kafkaclient')
srcs=[]
for p in sorted(K.rglob('*.pxd'))+sorted(K.rglob('*.pyx')):
    for s in ('.pyx','.py'):
        q=p.with_suffix(s)
        if q.exists() and p.name!='__init__.pxd':
            if q not in srcs: srcs.append(q)
            break
exts=cythonize([Extension('.'.join(p.with_suffix('').parts),[str(p)]) for p in srcs], nthreads=2, force=bool(os.environ.get('FORCE')),
  compiler_directives={"language_level":3,"annotation_typing":False,"nonecheck":True})
for e in exts:
    e.extra_compile_args=[*e.extra_compile_args,'-g0']; e.extra_link_args=['-Wl,-s']
setup(ext_modules=exts)
