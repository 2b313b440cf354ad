package attributes

import "bytes"

type File struct{ some bool }

func Parse(data []byte, base string, fold bool) *File { return &File{len(bytes.TrimSpace(data)) > 0} }
func (f *File) MayConvert(path []byte) bool           { return f.some }
func (f *File) Plain() bool                           { return !f.some }
