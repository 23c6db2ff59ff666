//! Records to the buffers of Arrow columns: the compiled twin of `spark/decode_numpy.py`, which says what a record is.
//!
//! Every position is checked before it is read, so damaged bytes are a ValueError and never a fault. The buffers that
//! go back to Python are owned by small objects with the buffer protocol: Arrow takes them without a copy.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::os::raw::{c_int, c_void};

type Found<T> = Result<T, &'static str>;

/// Bytes that Python reads in place.
#[pyclass(frozen)]
struct Owned(Vec<u8>);

#[pymethods]
impl Owned {
    unsafe fn __getbuffer__(slf: PyRef<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = &slf.0;
        let (data, len) = (bytes.as_ptr() as *mut c_void, bytes.len() as ffi::Py_ssize_t);
        match ffi::PyBuffer_FillInfo(view, slf.as_ptr(), data, len, 1, flags) {
            0 => Ok(()),
            _ => Err(PyBufferError::new_err("the bytes cannot be written")),
        }
    }
}

/// A column of Arrow's type binary or string while it grows.
struct Variable {
    validity: Vec<u8>,
    nulls: usize,
    rows: usize,
    offsets: Vec<u8>,
    data: Vec<u8>,
}

impl Variable {
    fn new(rows: usize, bytes: usize) -> Self {
        let mut offsets = Vec::with_capacity(4 * rows + 4);
        offsets.extend_from_slice(&0i32.to_ne_bytes());
        Variable { validity: vec![0; rows / 8 + 1], nulls: 0, rows: 0, offsets, data: Vec::with_capacity(bytes) }
    }

    #[inline]
    fn push(&mut self, cell: Option<&[u8]>) {
        if self.rows / 8 >= self.validity.len() {
            self.validity.push(0);
        }
        match cell {
            Some(bytes) => {
                self.validity[self.rows / 8] |= 1 << (self.rows % 8);
                self.data.extend_from_slice(bytes);
            }
            None => self.nulls += 1,
        }
        self.rows += 1;
        self.offsets.extend_from_slice(&(self.data.len() as i32).to_ne_bytes());
    }

    fn done(self) -> (Option<Owned>, Owned, Owned) {
        ((self.nulls > 0).then_some(Owned(self.validity)), Owned(self.offsets), Owned(self.data))
    }
}

/// Reads one body from its beginning to its end.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    #[inline]
    fn byte(&mut self) -> Found<u8> {
        let byte = *self.bytes.get(self.at).ok_or("records are cut off")?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    fn varint(&mut self) -> Found<i64> {
        let mut byte = self.byte()?;
        let mut value = u64::from(byte & 0x7f);
        let mut shift = 7;
        while byte > 0x7f {
            if shift > 63 {
                return Err("a varint has more than ten bytes");
            }
            byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
        }
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A key or value that must end at or before `end`; null below a length of 0.
    #[inline]
    fn field(&mut self, end: usize) -> Found<Option<&'a [u8]>> {
        let length = self.varint()?;
        if length < 0 {
            return Ok(None);
        }
        if self.at > end || length as u64 > (end - self.at) as u64 {
            return Err("a field is longer than its record");
        }
        let field = &self.bytes[self.at..self.at + length as usize];
        self.at += length as usize;
        Ok(Some(field))
    }
}

struct Columns {
    rows: usize,
    offsets: Vec<u8>,
    timestamps: Vec<u8>,
    key: Option<Variable>,
    value: Option<Variable>,
    headers: Option<Headers>,
}

struct Headers {
    lists: Variable,
    count: i32,
    key: Variable,
    value: Variable,
}

impl Columns {
    fn read(&mut self, body: &[u8], count: usize, offset: i64, time: i64, append_time: i64) -> Found<()> {
        let mut reader = Reader { bytes: body, at: 0 };
        for _ in 0..count {
            let length = reader.varint()?;
            if length < 0 || length as u64 > (body.len() - reader.at) as u64 {
                return Err("a record's length is wrong");
            }
            let end = reader.at + length as usize;
            reader.byte()?; // attributes
            let timestamp = time.wrapping_add(reader.varint()?);
            let timestamp = if append_time == i64::MIN { timestamp } else { append_time };
            let delta = reader.varint()?;
            self.offsets.extend_from_slice(&offset.wrapping_add(delta).to_ne_bytes());
            self.timestamps.extend_from_slice(&timestamp.wrapping_mul(1000).to_ne_bytes());
            let key = reader.field(end)?;
            if let Some(column) = &mut self.key {
                column.push(key);
            }
            let value = reader.field(end)?;
            if let Some(column) = &mut self.value {
                column.push(value);
            }
            let headers = reader.varint()?;
            if headers < 0 || (headers == 0 && reader.at != end) {
                return Err("a record's length is wrong");
            }
            match &mut self.headers {
                Some(column) => column.read(&mut reader, headers, end)?,
                None => reader.at = end,
            }
            self.rows += 1;
        }
        if reader.at != body.len() {
            return Err("records do not fill their batch");
        }
        Ok(())
    }
}

impl Headers {
    fn read(&mut self, reader: &mut Reader<'_>, headers: i64, end: usize) -> Found<()> {
        for _ in 0..headers {
            let key = reader.field(end)?.ok_or("a header key is null")?;
            std::str::from_utf8(key).map_err(|_| "a header key is not UTF-8")?;
            self.key.push(Some(key));
            self.value.push(reader.field(end)?);
        }
        if reader.at != end {
            return Err("a record's length is wrong");
        }
        // Spark's own source gives null, not an empty list, to a record without headers.
        self.lists.push((headers > 0).then_some(&[]));
        self.count += headers as i32;
        let at = self.lists.offsets.len() - 4;
        self.lists.offsets[at..].copy_from_slice(&self.count.to_ne_bytes());
        Ok(())
    }
}

type Column = (Option<Owned>, Owned, Owned);
type HeaderColumn = (Option<Owned>, Owned, i32, Column, Column);
type Piece = (PyBuffer<u8>, usize, i64, i64, i64);

/// pieces: (body, count, base offset, base timestamp, append time or the least i64) of each batch.
#[pyfunction]
#[allow(clippy::type_complexity)]
fn read_columns(
    pieces: Vec<Piece>,
    key: bool,
    value: bool,
    headers: bool,
) -> PyResult<(usize, Owned, Owned, Option<Column>, Option<Column>, Option<HeaderColumn>)> {
    let bytes: usize = pieces.iter().map(|piece| piece.0.len_bytes()).sum();
    // A record has seven bytes at least: what a header claims beyond that is not made room for.
    let rows = pieces.iter().map(|piece| piece.1.min(piece.0.len_bytes() / 7)).sum::<usize>();
    let mut columns = Columns {
        rows: 0,
        offsets: Vec::with_capacity(8 * rows),
        timestamps: Vec::with_capacity(8 * rows),
        key: key.then(|| Variable::new(rows, 0)),
        value: value.then(|| Variable::new(rows, bytes)),
        headers: headers.then(|| Headers {
            lists: Variable::new(rows, 0),
            count: 0,
            key: Variable::new(0, 0),
            value: Variable::new(0, 0),
        }),
    };
    for (body, count, offset, time, append_time) in &pieces {
        if !body.is_c_contiguous() {
            return Err(PyBufferError::new_err("a body must be contiguous"));
        }
        // SAFETY: the buffer is held until the end, and nobody writes to it while we have the GIL.
        let body = unsafe { std::slice::from_raw_parts(body.buf_ptr().cast::<u8>(), body.len_bytes()) };
        columns.read(body, *count, *offset, *time, *append_time).map_err(PyValueError::new_err)?;
    }
    let headers = columns.headers.map(|found| {
        let (validity, lists, _) = found.lists.done();
        (validity, lists, found.count, found.key.done(), found.value.done())
    });
    Ok((
        columns.rows,
        Owned(columns.offsets),
        Owned(columns.timestamps),
        columns.key.map(Variable::done),
        columns.value.map(Variable::done),
        headers,
    ))
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(read_columns, module)?)
}
